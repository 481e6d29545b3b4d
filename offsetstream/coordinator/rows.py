"""The rows of a group in `groups` and the three tables of its members, as plain dictionaries.

They have the columns of those tables, except what only the place of the record tells (`offsets_partition`,
`log_id`, `in_coordinator_partition`); timestamps are milliseconds since 1970, in `record_timestamp_ms`
and `state_timestamp_ms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from offsetstream.coordinator.cells import Cell

Row = dict[str, Any]

GROUP_COLUMNS = (
    "group_id",
    "group_type",
    "state",
    "is_simple",
    "protocol_type",
    "protocol",
    "generation",
    "group_epoch",
    "assignment_epoch",
    "leader_member_id",
    "member_count",
    "state_timestamp_ms",
    "record_offset",
    "record_timestamp_ms",
)
MEMBER_COLUMNS = (
    "group_id",
    "member_id",
    "group_instance_id",
    "client_id",
    "client_host",
    "rack_id",
    "session_timeout_ms",
    "rebalance_timeout_ms",
    "member_epoch",
    "previous_member_epoch",
    "member_state",
    "is_classic_protocol",
    "server_assignor",
    "subscribed_topic_regex",
    "process_id",
    "user_endpoint",
    "topology_epoch",
    "record_offset",
    "record_timestamp_ms",
)
SUBSCRIPTION_COLUMNS = ("group_id", "member_id", "topic", "subscribed_by", "record_offset", "record_timestamp_ms")
ASSIGNMENT_COLUMNS = (
    "group_id",
    "member_id",
    "kind",
    "subtopology_id",
    "topic_id",
    "topic",
    "partition",
    "assignment_epoch",
    "record_offset",
    "record_timestamp_ms",
)
# Of what a member has partitions: kind, subtopology_id, topic_id, and a topic's name where it has no id, as that of
# others may be known later.
Place = tuple[str, str | None, str | None, str | None]
Partitions = Mapping[int, int | None]  # the assignment_epoch of each
Share = tuple[str | None, Partitions]  # topic
PARTITION_COLUMNS = ("partition", "assignment_epoch")


@dataclass(frozen=True, slots=True)
class Assignments:
    """Rows of `member_assignments`, or of their history, that have in `common` what their shares do not tell.

    Groups have millions of such rows: few of those who want them want each by itself.
    """

    common: Row
    shares: Mapping[Place, Share]

    def __len__(self) -> int:
        return sum(len(partitions) for _, partitions in self.shares.values())

    def by_place(self) -> Iterator[tuple[Row, Partitions]]:
        """Yield what the rows of each place share, and their `PARTITION_COLUMNS`."""
        for (kind, subtopology_id, topic_id, _), (topic, partitions) in self.shares.items():
            of_place = {"kind": kind, "subtopology_id": subtopology_id, "topic_id": topic_id, "topic": topic}
            yield self.common | of_place, partitions

    def rows(self) -> list[Row]:
        """Return each by itself."""
        return [
            shared | dict(zip(PARTITION_COLUMNS, of_partition, strict=True))
            for shared, partitions in self.by_place()
            for of_partition in partitions.items()
        ]


@dataclass(frozen=True, slots=True)
class GroupRows:
    """What the tables hold of one group: one row of `groups`, any number of the others."""

    group: Row
    members: list[Row] = field(default_factory=list)
    shares: list[Assignments] = field(default_factory=list)
    subscriptions: list[Row] = field(default_factory=list)

    @property
    def assignments(self) -> list[Row]:
        """Rows of `member_assignments`, one by one."""
        return [row for own in self.shares for row in own.rows()]

    def place(self, columns: Mapping[str, Any]) -> None:
        """Give all rows these columns."""
        for row in (self.group, *self.members, *(own.common for own in self.shares), *self.subscriptions):
            row.update(columns)


def group_row(record: Cell | None, **values: Any) -> Row:
    """Return a row of `groups`; columns that are not given are null."""
    return _row(GROUP_COLUMNS, record, values)


def member_row(record: Cell, **values: Any) -> Row:
    """Return a row of `group_members`; columns that are not given are null."""
    return _row(MEMBER_COLUMNS, record, values)


def subscription_row(record: Cell, **values: Any) -> Row:
    """Return a row of `member_subscriptions`."""
    return _row(SUBSCRIPTION_COLUMNS, record, values)


def assignments_of(record: Cell, group_id: str, member_id: str, found: Iterable[tuple[Place, Share]]) -> Assignments:
    """Return the rows of `member_assignments` that one record makes of one member.

    There is one row per partition of a place: a broker puts them into a map, so the last one stays.
    """
    common = _row(ASSIGNMENT_COLUMNS, record, {"group_id": group_id, "member_id": member_id})
    return Assignments(common, together(found))


def together(found: Iterable[tuple[Place, Share]]) -> dict[Place, Share]:
    """Return the shares by their place, those of one place as one."""
    shares: dict[Place, Share] = {}
    for place, (topic, partitions) in found:
        shares[place] = topic, {**shares[place][1], **partitions} if place in shares else partitions
    return shares


def _row(columns: tuple[str, ...], record: Cell | None, values: Row) -> Row:
    row: Row = dict.fromkeys(columns)
    row.update(values)
    if record is not None:
        row["record_offset"] = record.record_offset
        row["record_timestamp_ms"] = record.record_timestamp_ms
    return row
