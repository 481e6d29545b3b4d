"""Compute what changed in a group: compare its rows before and after each step of its records.

A step is a run of records of one group with consecutive offsets and one timestamp. The coordinator appended them
together, as it does for the changes of one request (reference 5.8), so the states within a step never existed.
Timestamps are milliseconds since 1970.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from offsetstream.coordinator.groups import derive_group
from offsetstream.coordinator.modern_groups import MemberCache
from offsetstream.coordinator.rows import (
    AssignmentKey,
    Assignments,
    Cell,
    GroupRows,
    NamedPartitions,
    Row,
    merge_by_key,
)

CellKey = tuple[int, str]  # key type, and the key as Kafka's JSON
_RECORD_COLUMNS = ("record_offset", "record_timestamp_ms")  # a later record may repeat the same content
_PartitionsByKey = Mapping[AssignmentKey, NamedPartitions]
_NOTHING: NamedPartitions = None, {}


@dataclass(frozen=True)
class GroupRecord:
    """A record of a group other than an offset commit. `cell` is its content, None for a tombstone."""

    key: CellKey
    cell: Cell | None
    record_offset: int
    record_timestamp_ms: int | None


@dataclass
class Changes:
    """Rows of `group_history`, `member_history` and `assignment_history`, without the columns that name the log.

    All rows have the offset of the last record of their step.
    """

    record_offset: int
    groups: list[Row] = field(default_factory=list)
    members: list[Row] = field(default_factory=list)
    assignments: list[Assignments] = field(default_factory=list)

    def place(self, columns: Row) -> None:
        """Add these columns to all rows."""
        for row in (*self.groups, *self.members, *(assignments.common for assignments in self.assignments)):
            row.update(columns)


@dataclass(frozen=True)
class _Members:
    """A group's members: rows, current and target assignments, and subscribed topics, each by member id."""

    rows: Mapping[str, Row]
    shares: Mapping[str, _PartitionsByKey]
    topics: Mapping[str, str]

    @classmethod
    def of(cls, derived: GroupRows | None) -> _Members:
        if derived is None:
            return cls({}, {}, {})
        shares, topics = dict[str, _PartitionsByKey](), defaultdict[str, set[str]](set)
        for assignments in derived.shares:
            member_id = assignments.common["member_id"]
            before = shares.get(member_id)
            shares[member_id] = (
                merge_by_key((*before.items(), *assignments.shares.items())) if before else assignments.shares
            )
        for row in derived.subscriptions:
            topics[row["member_id"]].add(row["topic"])
        return cls(
            {row["member_id"]: row for row in derived.members},
            shares,
            {member_id: ",".join(sorted(names)) for member_id, names in topics.items()},
        )


class GroupTimeline:
    """One group over time. `put` its records in log order; `changes` returns what changed since the last call."""

    def __init__(self, group_id: str, topic_names: Mapping[str, str]) -> None:
        self._group_id = group_id
        self._topic_names = topic_names
        self._cells: dict[CellKey, Cell] = {}
        self._known: MemberCache = {}
        self._group: Row | None = None
        self._members = _Members.of(None)

    def put(self, record: GroupRecord) -> None:
        """Add a record. The last record of each key counts; a tombstone deletes."""
        if record.cell is None:
            self._cells.pop(record.key, None)
        else:
            self._cells[record.key] = record.cell

    def become(self, cells: Mapping[CellKey, Cell]) -> None:
        """Replace all cells: some records were deleted from the log before they were read."""
        self._cells = dict(cells)

    def changes(self, record_offset: int, record_timestamp_ms: int | None) -> Changes:
        """Return what changed since the last call. The arguments belong to the last record of a step."""
        before, old = self._group, self._members
        derived = derive_group(
            [*self._cells.values()],
            group_id=self._group_id,
            exists=False,
            topic_names=self._topic_names,
            known=self._known,
        )
        self._group, self._members = None if derived is None else derived.group, _Members.of(derived)
        step_columns = {"record_offset": record_offset, "record_timestamp_ms": record_timestamp_ms}
        found = Changes(record_offset)
        if _differ(before, self._group):
            found.groups.append({**(self._group or before or {}), **step_columns, "is_removed": self._group is None})
        member_columns = step_columns | {"epoch": _epoch(self._group or before)}
        for member_id in sorted(old.rows.keys() | self._members.rows.keys()):
            self._compare_member(member_id, old, member_columns, found)
        return found

    def _compare_member(self, member_id: str, old: _Members, member_columns: Row, found: Changes) -> None:
        new = self._members
        old_row, row = old.rows.get(member_id), new.rows.get(member_id)
        old_topics, topics = old.topics.get(member_id), new.topics.get(member_id)
        if old_topics != topics or _differ(old_row, row):
            change = "left" if row is None else "joined" if old_row is None else "changed"
            subscribed = old_topics if row is None else topics
            found.members.append(
                {**(row or old_row or {}), **member_columns, "change": change, "subscribed_topics": subscribed}
            )
        before, after = old.shares.get(member_id, {}), new.shares.get(member_id, {})
        if before != after:
            columns = {"group_id": self._group_id, "member_id": member_id, **member_columns}
            found.assignments += _compare_assignments(before, after, columns)


def changes_by_step(
    records: Iterable[GroupRecord], timeline: GroupTimeline, ends: Collection[int] = (), open_end: int | None = None
) -> Generator[Changes, None, GroupRecord | None]:
    """Put one group's records, in log order, into its timeline, and yield the changes of each step.

    A step always ends at the record offsets in `ends`, whatever follows. Changes of a last step that ends at `open_end`
    are not yielded; its last record is returned.
    """
    last: GroupRecord | None = None
    for record in records:
        if last is not None and (last.record_offset in ends or not is_same_step(last, record)):
            yield timeline.changes(last.record_offset, last.record_timestamp_ms)
        timeline.put(record)
        last = record
    if last is not None and last.record_offset == open_end:
        return last
    if last is not None:
        yield timeline.changes(last.record_offset, last.record_timestamp_ms)
    return None


def is_same_step(record: GroupRecord, following: GroupRecord) -> bool:
    """Whether the following record of the same group belongs to the same step."""
    is_next = following.record_offset == record.record_offset + 1
    return is_next and following.record_timestamp_ms == record.record_timestamp_ms


def _compare_assignments(before: _PartitionsByKey, after: _PartitionsByKey, columns: Row) -> Iterator[Assignments]:
    found = defaultdict[str, dict[AssignmentKey, NamedPartitions]](dict)
    for key in {**before, **after}:
        old, new = before.get(key, _NOTHING), after.get(key, _NOTHING)
        if old != new:
            for change, partitions in _changes(old, new):
                found[change][key] = partitions
    for change, changed in found.items():
        yield Assignments({**columns, "change": change}, changed)


def _changes(before: NamedPartitions, after: NamedPartitions) -> Iterator[tuple[str, NamedPartitions]]:
    (old_topic, old), (topic, new) = before, after
    if revoked := {number: epoch for number, epoch in old.items() if number not in new}:
        yield "revoked", (old_topic, revoked)
    if assigned := {number: epoch for number, epoch in new.items() if number not in old}:
        yield "assigned", (topic, assigned)
    kept = ((number, epoch) for number, epoch in new.items() if number in old)
    if changed := {number: epoch for number, epoch in kept if (old_topic, old[number]) != (topic, epoch)}:
        yield "changed", (topic, changed)


def _differ(before: Row | None, after: Row | None) -> bool:
    """Whether two rows differ, apart from the record that they come from."""
    if before is after:
        return False
    if before is None or after is None:
        return True
    return any(value != before[name] for name, value in after.items() if name not in _RECORD_COLUMNS)


def _epoch(group: Row | None) -> int | None:
    if group is None:
        return None
    epoch: int | None = group["group_epoch"] if group["generation"] is None else group["generation"]
    return epoch
