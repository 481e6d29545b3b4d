"""What happened to a group: its rows before and after each step of its records, compared.

A step is a run of records of one group with neighbouring offsets and one timestamp: the coordinator appended them at
once, as it does with what one request changes (reference 5.8), and states inside it never were. Timestamps are
milliseconds since 1970.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from offsetstream.coordinator.cells import Cell
from offsetstream.coordinator.groups import derive_group
from offsetstream.coordinator.modern_groups import KnownMembers
from offsetstream.coordinator.rows import ASSIGNMENT_KEY, GroupRows, Row, name_topics

CellKey = tuple[int, str]  # key type, and the key as Kafka's JSON
_PLACE = ("record_offset", "record_timestamp_ms")  # of a record that may say the same as the one before
# What an assignment is of, and what else it says.
_BY_NAME, _BY_ID = itemgetter(*ASSIGNMENT_KEY), itemgetter(*(name for name in ASSIGNMENT_KEY if name != "topic"))
_SAID = itemgetter("topic", "assignment_epoch")


@dataclass(frozen=True)
class GroupRecord:
    """A record of a group that is no offset commit: `cell` is what it says, None for a tombstone."""

    key: CellKey
    cell: Cell | None
    record_offset: int
    record_timestamp_ms: int | None


@dataclass
class Changes:
    """Rows of `group_history`, `member_history` and `assignment_history`, but for the columns that name the log."""

    groups: list[Row] = field(default_factory=list)
    members: list[Row] = field(default_factory=list)
    assignments: list[Row] = field(default_factory=list)


@dataclass(frozen=True)
class _Members:
    """The rows of a group's members by member id, of its assignments and of the subscribed topics by member."""

    rows: Mapping[str, Row]
    assignments: Mapping[str, list[Row]]
    topics: Mapping[str, str]

    @classmethod
    def of(cls, derived: GroupRows | None) -> _Members:
        if derived is None:
            return cls({}, {}, {})
        assignments, topics = defaultdict[str, list[Row]](list), defaultdict[str, set[str]](set)
        for row in derived.assignments:
            assignments[row["member_id"]].append(row)
        for row in derived.subscriptions:
            topics[row["member_id"]].add(row["topic"])
        return cls(
            {row["member_id"]: row for row in derived.members},
            assignments,
            {member_id: ",".join(sorted(own)) for member_id, own in topics.items()},
        )


class GroupTimeline:
    """One group as its records go by, each as `put` into it; `changes` tells what came of those since the last time."""

    def __init__(self, group_id: str, topic_names: Mapping[str, str]) -> None:
        self._group_id = group_id
        self._topic_names = topic_names
        self._cells: dict[CellKey, Cell] = {}
        self._known: KnownMembers = {}
        self._group: Row | None = None
        self._members = _Members.of(None)

    def put(self, record: GroupRecord) -> None:
        """Take in a record: the last of each key counts, a tombstone deletes."""
        if record.cell is None:
            self._cells.pop(record.key, None)
        else:
            self._cells[record.key] = record.cell

    def become(self, cells: Mapping[CellKey, Cell]) -> None:
        """Be what these cells say, whatever was there: some records are gone unread."""
        self._cells = dict(cells)

    def changes(self, record_offset: int, record_timestamp_ms: int | None) -> Changes:
        """Return what is other than the last time, as of a record: the last of a step."""
        before, old = self._group, self._members
        derived = derive_group([*self._cells.values()], group_id=self._group_id, exists=False, known=self._known)
        if derived is not None:
            name_topics(derived.assignments, self._topic_names)
        self._group, self._members = None if derived is None else derived.group, _Members.of(derived)
        of_step = {"record_offset": record_offset, "record_timestamp_ms": record_timestamp_ms}
        found = Changes()
        if _differ(before, self._group):
            found.groups.append({**(self._group or before or {}), **of_step, "is_removed": self._group is None})
        of_members = of_step | {"epoch": _epoch(self._group or before)}
        for member_id in sorted(old.rows.keys() | self._members.rows.keys()):
            self._compare_member(member_id, old, of_members, found)
        return found

    def _compare_member(self, member_id: str, old: _Members, of_step: Row, found: Changes) -> None:
        new = self._members
        was, row = old.rows.get(member_id), new.rows.get(member_id)
        had, topics = old.topics.get(member_id), new.topics.get(member_id)
        if had != topics or _differ(was, row):
            change = "left" if row is None else "joined" if was is None else "changed"
            subscribed = had if row is None else topics
            found.members.append({**(row or was or {}), **of_step, "change": change, "subscribed_topics": subscribed})
        before, after = old.assignments.get(member_id, []), new.assignments.get(member_id, [])
        if before != after:
            found.assignments += _compare_assignments(before, after, of_step)


def steps(records: Iterable[GroupRecord], timeline: GroupTimeline, ends: Collection[int] = ()) -> Iterator[Changes]:
    """Put one group's records, in log order, into its timeline, and yield the changes of each step.

    At `ends`, record offsets, a step ends whatever follows.
    """
    last: GroupRecord | None = None
    for record in records:
        if last is not None and (last.record_offset in ends or not is_same_step(last, record)):
            yield timeline.changes(last.record_offset, last.record_timestamp_ms)
        timeline.put(record)
        last = record
    if last is not None:
        yield timeline.changes(last.record_offset, last.record_timestamp_ms)


def is_same_step(record: GroupRecord, following: GroupRecord) -> bool:
    """Tell whether a record of the same group goes on with the step."""
    is_next = following.record_offset == record.record_offset + 1
    return is_next and following.record_timestamp_ms == record.record_timestamp_ms


def _compare_assignments(before: list[Row], after: list[Row], of_step: Row) -> Iterator[Row]:
    old, new = _by_place(before), _by_place(after)
    for key, row in old.items():
        if key not in new:
            yield {**row, **of_step, "change": "revoked"}
    for key, row in new.items():
        if key not in old:
            yield {**row, **of_step, "change": "assigned"}
        elif _SAID(old[key]) != _SAID(row):
            yield {**row, **of_step, "change": "changed"}


def _by_place(rows: Iterable[Row]) -> dict[tuple[object, ...], Row]:
    # A topic that has an id is the same whatever its name was taken for.
    return {_BY_NAME(row) if row["topic_id"] is None else _BY_ID(row): row for row in rows}


def _differ(before: Row | None, after: Row | None) -> bool:
    """Tell whether two rows say different things, whatever records say so."""
    if before is after:
        return False
    if before is None or after is None:
        return True
    return any(value != before[name] for name, value in after.items() if name not in _PLACE)


def _epoch(group: Row | None) -> int | None:
    if group is None:
        return None
    epoch: int | None = group["group_epoch"] if group["generation"] is None else group["generation"]
    return epoch
