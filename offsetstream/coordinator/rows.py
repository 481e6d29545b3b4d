"""The cells of a group, and the rows that are derived from them: in `groups` and the three tables of its members.

Rows are plain dictionaries. They have the tables' columns, except those that depend on the record's place in the log
(`offsets_partition`, `log_id`, `in_coordinator_partition`). Timestamps are milliseconds since 1970, in
`record_timestamp_ms` and `state_timestamp_ms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

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
# What a member's partitions belong to: kind, subtopology_id, topic_id, topic name. The name is None for a topic with an
# id, because it may become known later.
AssignmentKey = tuple[str, str | None, str | None, str | None]
Partitions = Mapping[int, int | None]  # partition to assignment_epoch
NamedPartitions = tuple[str | None, Partitions]  # topic name, partitions
PARTITION_COLUMNS = ("partition", "assignment_epoch")


@dataclass(frozen=True, slots=True)
class Cell:
    """The last record of one key, unless it is a tombstone. A group is derived from its cells.

    `key_type` is the first number of the key (reference 1.1). `key` and `value` are the data of Kafka's own JSON
    (reference 8.2: bytes as base64; a tagged field that equals its default is absent). `record_offset` is the record's
    offset in its offsets partition, `record_timestamp_ms` its timestamp in milliseconds since 1970.
    """

    key_type: int
    key: dict[str, Any]
    value: dict[str, Any]
    record_offset: int
    record_timestamp_ms: int | None

    @property
    def member_id(self) -> str:
        """The member id in the key. Raises KeyError if the key has none."""
        member_id: str = self.key["memberId"]
        return member_id


def latest(cells: Iterable[Cell]) -> Cell:
    """Return the cell whose record is the last in the log. Raises ValueError if there is none."""
    return max(cells, key=lambda cell: cell.record_offset)


@dataclass(frozen=True, slots=True)
class Assignments:
    """Rows of `member_assignments` or its history. `common` has the columns that are the same in all of them.

    A group can have millions of such rows, and most callers do not need one dictionary for each.
    """

    common: Row
    shares: Mapping[AssignmentKey, NamedPartitions]

    def __len__(self) -> int:
        return sum(len(partitions) for _, partitions in self.shares.values())

    def by_place(self) -> Iterator[tuple[Row, Partitions]]:
        """Yield, for each key, the columns that its rows share, and its partitions with their assignment epochs."""
        for (kind, subtopology_id, topic_id, _), (topic, partitions) in self.shares.items():
            key_columns = {"kind": kind, "subtopology_id": subtopology_id, "topic_id": topic_id, "topic": topic}
            yield self.common | key_columns, partitions

    def rows(self) -> list[Row]:
        """Return one dictionary per row."""
        return [
            shared | dict(zip(PARTITION_COLUMNS, partition, strict=True))
            for shared, partitions in self.by_place()
            for partition in partitions.items()
        ]


@dataclass(frozen=True, slots=True)
class GroupRows:
    """The table rows of one group: one row of `groups`, any number of the others."""

    group: Row
    members: list[Row] = field(default_factory=list)
    shares: list[Assignments] = field(default_factory=list)
    subscriptions: list[Row] = field(default_factory=list)

    @property
    def assignments(self) -> list[Row]:
        """The rows of `member_assignments`, one dictionary each."""
        return [row for assignments in self.shares for row in assignments.rows()]

    def place(self, columns: Mapping[str, Any]) -> None:
        """Add these columns to all rows."""
        for row in (
            self.group,
            *self.members,
            *(assignments.common for assignments in self.shares),
            *self.subscriptions,
        ):
            row.update(columns)


def group_row(record: Cell | None, **values: Any) -> Row:
    """Return a row of `groups`. Columns that are not given are null."""
    return _row(GROUP_COLUMNS, record, values)


def member_row(record: Cell, **values: Any) -> Row:
    """Return a row of `group_members`. Columns that are not given are null."""
    return _row(MEMBER_COLUMNS, record, values)


def subscription_row(record: Cell, **values: Any) -> Row:
    """Return a row of `member_subscriptions`."""
    return _row(SUBSCRIPTION_COLUMNS, record, values)


def assignments_of(
    record: Cell, group_id: str, member_id: str, found: Iterable[tuple[AssignmentKey, NamedPartitions]]
) -> Assignments:
    """Return the rows of `member_assignments` that one record gives for one member.

    If a partition is listed twice, the last entry counts: a broker puts the partitions into a map.
    """
    common = _row(ASSIGNMENT_COLUMNS, record, {"group_id": group_id, "member_id": member_id})
    return Assignments(common, merge_by_key(found))


def merge_by_key(found: Iterable[tuple[AssignmentKey, NamedPartitions]]) -> dict[AssignmentKey, NamedPartitions]:
    """Merge partitions that have the same key."""
    merged: dict[AssignmentKey, NamedPartitions] = {}
    for key, (topic, partitions) in found:
        merged[key] = topic, {**merged[key][1], **partitions} if key in merged else partitions
    return merged


def _row(columns: tuple[str, ...], record: Cell | None, values: Row) -> Row:
    row: Row = dict.fromkeys(columns)
    row.update(values)
    if record is not None:
        row["record_offset"] = record.record_offset
        row["record_timestamp_ms"] = record.record_timestamp_ms
    return row
