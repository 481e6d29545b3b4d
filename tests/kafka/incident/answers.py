"""What the cluster itself says at the end of the incident, by Kafka's Admin client: no table and no view is asked."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from offsetstream.cluster.rights import OFFSETS_TOPIC
from tests.kafka.incident.book import Cell, Place
from tests.kafka.incident.hands import Hands
from tests.reliability.truth import Records

Row = dict[str, Any]
Ends = tuple[int, int, int]  # the log's start, its last stable offset, its end


@dataclass(frozen=True)
class Answers:
    """Groups, members and assignments as of `verify`; offsets; ends; coordinators; the records of the topic."""

    groups: dict[str, Row]
    members: list[Row]
    assignments: list[Row]
    offsets: dict[Cell, int]
    ends: dict[Place, Ends]
    coordinators: dict[int, tuple[int | None, int | None]]
    records: Records
    lost_log: Records  # what was in a log before it was cut

    def clients(self) -> dict[tuple[str, str], str]:
        """The client id of each member of a group."""
        return {(row["group_id"], row["member_id"]): row["client_id"] for row in self.members}

    def owners(self) -> dict[Cell, str]:
        """The member to which each partition is assigned; of share groups, which have several, the least."""
        found = defaultdict[Cell, list[str]](list)
        for row in self.assignments:
            if row["kind"] == "assigned":
                found[Cell(row["group_id"], row["topic"], row["partition"])].append(row["member_id"])
        return {cell: min(members) for cell, members in found.items()}

    def offsets_of(self, group: str) -> dict[Cell, int]:
        return {cell: offset for cell, offset in self.offsets.items() if cell.group == group}


def ask(hands: Hands) -> Answers:
    """Ask, of a cluster in which nothing happens."""
    found = hands.admin.answers()
    ends: dict[Place, Ends] = {}
    for topic in {*hands.admin.topic_names().values()} - {OFFSETS_TOPIC}:
        told = hands.cluster.partition_ends(hands.cluster.topic_partitions(topic), topic)
        for number, end in told.items():
            ends[topic, number] = (end.log_start_offset, end.last_stable_offset, end.high_watermark)
    return Answers(
        {row["group_id"]: row for row in found.groups},
        found.members,
        found.assignments,
        {Cell(row["group_id"], row["topic"], row["partition"]): row["committed_offset"] for row in found.offsets},
        ends,
        hands.look_at_coordinators(),
        hands.keep_records(),
        hands.lost_log,
    )
