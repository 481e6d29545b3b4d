"""The cluster's own answers at the end of the incident, from Kafka's Admin client, without our tables and views."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from offsetstream.cluster.rights import OFFSETS_TOPIC
from tests.kafka.incident.actions import Actions
from tests.kafka.incident.book import Cell, Place
from tests.reliability.truth import Records

Row = dict[str, Any]
Ends = tuple[int, int, int]  # the log's start, its last stable offset, its end


@dataclass(frozen=True)
class Answers:
    """Groups, members and assignments as `verify` reads them; offsets; ends; coordinators; the topic's records."""

    groups: dict[str, Row]
    members: list[Row]
    assignments: list[Row]
    offsets: dict[Cell, int]
    ends: dict[Place, Ends]
    coordinators: dict[int, tuple[int | None, int | None]]
    records: Records
    lost_log: Records  # the records of the log before it was cut

    def clients(self) -> dict[tuple[str, str], str]:
        """Return the client id of each member, by group and member id."""
        return {(row["group_id"], row["member_id"]): row["client_id"] for row in self.members}

    def owners(self) -> dict[Cell, str]:
        """Return the owner of each partition; share groups have several, so the smallest member id."""
        member_ids = defaultdict[Cell, list[str]](list)
        for row in self.assignments:
            if row["kind"] == "assigned":
                member_ids[Cell(row["group_id"], row["topic"], row["partition"])].append(row["member_id"])
        return {cell: min(members) for cell, members in member_ids.items()}

    def offsets_of(self, group: str) -> dict[Cell, int]:
        return {cell: offset for cell, offset in self.offsets.items() if cell.group == group}


def ask_cluster(actions: Actions) -> Answers:
    """Query a cluster in which nothing changes."""
    answers = actions.admin.answers()
    ends: dict[Place, Ends] = {}
    for topic in {*actions.admin.topic_names().values()} - {OFFSETS_TOPIC}:
        end_offsets = actions.cluster.partition_ends(actions.cluster.topic_partitions(topic), topic)
        for number, end in end_offsets.items():
            ends[topic, number] = (end.log_start_offset, end.last_stable_offset, end.high_watermark)
    return Answers(
        {row["group_id"]: row for row in answers.groups},
        answers.members,
        answers.assignments,
        {Cell(row["group_id"], row["topic"], row["partition"]): row["committed_offset"] for row in answers.offsets},
        ends,
        actions.await_coordinators(),
        actions.keep_records(),
        actions.lost_log,
    )
