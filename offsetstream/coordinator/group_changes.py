"""What happened to a group: its rows before and after each step of its records, compared.

A step is a run of records of one group with neighbouring offsets and one timestamp: the coordinator appended them at
once, as it does with what one request changes (reference 5.8), and states inside it never were. Timestamps are
milliseconds since 1970.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from offsetstream.coordinator.cells import Cell
from offsetstream.coordinator.groups import derive_group
from offsetstream.coordinator.modern_groups import KnownMembers
from offsetstream.coordinator.rows import Assignments, GroupRows, Place, Row, Share, together

CellKey = tuple[int, str]  # key type, and the key as Kafka's JSON
_PLACE = ("record_offset", "record_timestamp_ms")  # of a record that may say the same as the one before
_Shares = Mapping[Place, Share]
_NOTHING: Share = None, {}


@dataclass(frozen=True)
class GroupRecord:
    """A record of a group that is no offset commit: `cell` is what it says, None for a tombstone."""

    key: CellKey
    cell: Cell | None
    record_offset: int
    record_timestamp_ms: int | None


@dataclass
class Changes:
    """Rows of `group_history`, `member_history` and `assignment_history`, but for the columns that name the log.

    All are of the offset of the record that ended their step.
    """

    record_offset: int
    groups: list[Row] = field(default_factory=list)
    members: list[Row] = field(default_factory=list)
    assignments: list[Assignments] = field(default_factory=list)

    def place(self, columns: Row) -> None:
        """Give all rows these columns."""
        for row in (*self.groups, *self.members, *(own.common for own in self.assignments)):
            row.update(columns)


@dataclass(frozen=True)
class _Members:
    """The rows of a group's members by member id, what each has and is to have, and its subscribed topics."""

    rows: Mapping[str, Row]
    shares: Mapping[str, _Shares]
    topics: Mapping[str, str]

    @classmethod
    def of(cls, derived: GroupRows | None) -> _Members:
        if derived is None:
            return cls({}, {}, {})
        shares, topics = dict[str, _Shares](), defaultdict[str, set[str]](set)
        for own in derived.shares:
            member_id = own.common["member_id"]
            before = shares.get(member_id)
            shares[member_id] = together((*before.items(), *own.shares.items())) if before else own.shares
        for row in derived.subscriptions:
            topics[row["member_id"]].add(row["topic"])
        return cls(
            {row["member_id"]: row for row in derived.members},
            shares,
            {member_id: ",".join(sorted(names)) for member_id, names in topics.items()},
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
        derived = derive_group(
            [*self._cells.values()],
            group_id=self._group_id,
            exists=False,
            topic_names=self._topic_names,
            known=self._known,
        )
        self._group, self._members = None if derived is None else derived.group, _Members.of(derived)
        of_step = {"record_offset": record_offset, "record_timestamp_ms": record_timestamp_ms}
        found = Changes(record_offset)
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
        before, after = old.shares.get(member_id, {}), new.shares.get(member_id, {})
        if before != after:
            of_member = {"group_id": self._group_id, "member_id": member_id, **of_step}
            found.assignments += _compare_shares(before, after, of_member)


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


def _compare_shares(before: _Shares, after: _Shares, of_member: Row) -> Iterator[Assignments]:
    found = defaultdict[str, dict[Place, Share]](dict)
    for place in {**before, **after}:
        old, new = before.get(place, _NOTHING), after.get(place, _NOTHING)
        if old != new:
            for change, share in _changes(old, new):
                found[change][place] = share
    for change, shares in found.items():
        yield Assignments({**of_member, "change": change}, shares)


def _changes(before: Share, after: Share) -> Iterator[tuple[str, Share]]:
    (was, had), (topic, has) = before, after
    if gone := {number: epoch for number, epoch in had.items() if number not in has}:
        yield "revoked", (was, gone)
    if new := {number: epoch for number, epoch in has.items() if number not in had}:
        yield "assigned", (topic, new)
    both = ((number, epoch) for number, epoch in has.items() if number in had)
    if other := {number: epoch for number, epoch in both if (was, had[number]) != (topic, epoch)}:
        yield "changed", (topic, other)


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
