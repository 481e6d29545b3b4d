"""The rows of a group in `groups` and the three tables of its members, as plain dictionaries.

They have the columns of those tables, except what only the place of the record tells (`offsets_partition`,
`log_id`, `in_coordinator_partition`); timestamps are milliseconds since 1970, in `record_timestamp_ms`
and `state_timestamp_ms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
# member_assignments' key, within one group
ASSIGNMENT_KEY = ("member_id", "kind", "subtopology_id", "topic_id", "topic", "partition")
# What of that key is not the member's: kind, subtopology_id, topic_id, topic, partition; and the assignment_epoch.
Share = tuple[tuple[str, str | None, str | None, str | None, int], int | None]


@dataclass(frozen=True, slots=True)
class GroupRows:
    """What the tables hold of one group: one row of `groups`, any number of the others."""

    group: Row
    members: list[Row] = field(default_factory=list)
    assignments: list[Row] = field(default_factory=list)
    subscriptions: list[Row] = field(default_factory=list)


def group_row(record: Cell | None, **values: Any) -> Row:
    """Return a row of `groups`; columns that are not given are null."""
    return _row(GROUP_COLUMNS, record, values)


def member_row(record: Cell, **values: Any) -> Row:
    """Return a row of `group_members`; columns that are not given are null."""
    return _row(MEMBER_COLUMNS, record, values)


def subscription_row(record: Cell, **values: Any) -> Row:
    """Return a row of `member_subscriptions`."""
    return _row(SUBSCRIPTION_COLUMNS, record, values)


def assignment_rows(record: Cell, group_id: str, member_id: str, shares: Iterable[Share]) -> list[Row]:
    """Return the rows of `member_assignments` of one member.

    There is one row per key: a broker puts the shares into a map, so the last one stays.
    """
    # Groups have millions of them, and a dictionary that is written out is the quickest to make.
    return [
        {
            "group_id": group_id,
            "member_id": member_id,
            "kind": kind,
            "subtopology_id": subtopology_id,
            "topic_id": topic_id,
            "topic": topic,
            "partition": partition,
            "assignment_epoch": assignment_epoch,
            "record_offset": record.record_offset,
            "record_timestamp_ms": record.record_timestamp_ms,
        }
        for (kind, subtopology_id, topic_id, topic, partition), assignment_epoch in dict(shares).items()
    ]


def name_topics(assignments: Iterable[Row], names: Mapping[str, str]) -> None:
    """Give assignments that have a topic's id only its name; an id without a name stands for itself."""
    for row in assignments:
        if row["topic_id"] is not None and row["topic"] is None:
            row["topic"] = names.get(row["topic_id"], row["topic_id"])


def _row(columns: tuple[str, ...], record: Cell | None, values: Row) -> Row:
    row: Row = dict.fromkeys(columns)
    row.update(values)
    if record is not None:
        row["record_offset"] = record.record_offset
        row["record_timestamp_ms"] = record.record_timestamp_ms
    return row
