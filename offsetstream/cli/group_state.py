"""Groups, their members, assignments and committed offsets, as look-ups read them: some at a time, by column."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

from offsetstream.tables.lookup import Lookup

Row = dict[str, Any]
Columns = Mapping[str, Sequence[Any]]
Copy = tuple[str, int]  # a group as one offsets partition has it

# Of `groups`: the current copy of a group before others.
COPIES_IN_ORDER = ("group_id", "-in_coordinator_partition", "offsets_partition")
_PLACE = ("offsets_partition", "group_id")
_COLUMNS = {
    "groups": (
        "in_coordinator_partition group_type state is_simple protocol_type protocol generation group_epoch "
        "assignment_epoch member_count"
    ),
    "group_members": (
        "member_id group_instance_id client_id client_host server_assignor member_epoch is_classic_protocol"
    ),
    "member_assignments": "member_id kind subtopology_id topic_id topic partition",
    "committed_offsets": "topic partition committed_offset leader_epoch",
}
_ORDER = {
    "groups": COPIES_IN_ORDER,
    "group_members": ("group_id", "offsets_partition", "member_id"),
    "member_assignments": ("group_id", "offsets_partition"),
    "committed_offsets": ("group_id", "offsets_partition", "topic", "partition"),
}


@dataclass
class Group:
    """A group as one offsets partition holds it: its row of `groups` and its rows of the other tables.

    A change of the number of offsets partitions can leave a group in a second one. `is_current` is false
    for such a copy, unless there is no other.
    """

    row: Row
    is_current: bool = True
    members: list[Row] = field(default_factory=list)
    assignments: list[Row] = field(default_factory=list)
    offsets: list[Row] = field(default_factory=list)

    @property
    def group_id(self) -> str:
        """The group's id."""
        group_id: str = self.row["group_id"]
        return group_id


class OfGroups:
    """A table's rows of some groups, by column: those of a copy of a group are one after the other."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    @cached_property
    def copies(self) -> list[Copy]:
        """Of each row the copy of a group that it is of."""
        return list(zip(self.columns["group_id"], self.columns["offsets_partition"], strict=True))

    def range_of(self, copy: Copy) -> range:
        """Return the numbers of the rows of a copy."""
        return self._ranges.get(copy, range(0))

    def rows_of(self, copy: Copy) -> list[Row]:
        """Return the rows of a copy."""
        return [self.row(number) for number in self.range_of(copy)]

    def row(self, number: int) -> Row:
        """Return a row."""
        return {name: values[number] for name, values in self.columns.items()}

    @cached_property
    def _ranges(self) -> dict[Copy, range]:
        found, end = dict[Copy, range](), 0
        for copy, count in Counter(self.copies).items():
            start, end = end, end + count
            found[copy] = range(start, end)
        return found


@dataclass(frozen=True)
class SomeGroups:
    """All copies of some groups by group id, the current one first, and what the tables have of them."""

    groups: OfGroups
    members: OfGroups
    assignments: OfGroups
    offsets: OfGroups

    @property
    def size(self) -> int:
        """How many rows there are."""
        return sum(len(own.copies) for own in (self.groups, self.members, self.assignments, self.offsets))

    @cached_property
    def are_current(self) -> list[bool]:
        """Of each row of `groups`, whether its copy is current."""
        return Current().of(self.groups.columns)

    @cached_property
    def with_members(self) -> dict[int, Group]:
        """The copies that have members, by the numbers of their rows of `groups`."""
        have = {*self.members.copies}
        return {number: self.group(number) for number, copy in enumerate(self.groups.copies) if copy in have}

    def each(self) -> Iterator[Group]:
        """Yield the copies one by one."""
        return map(self.group, range(len(self.groups.copies)))

    def group(self, number: int) -> Group:
        """Return a copy of a group with all its rows."""
        copy = self.groups.copies[number]
        parts = (of_group.rows_of(copy) for of_group in (self.members, self.assignments, self.offsets))
        return Group(self.groups.row(number), self.are_current[number], *parts)


class Current:
    """Tells which rows of `groups`, which come in `COPIES_IN_ORDER`, are current."""

    def __init__(self) -> None:
        self._group: str | None = None
        self._has_home = False  # the first of its copies is where its coordinator looks for it

    def of(self, groups: Columns) -> list[bool]:
        """Return it of each of the next rows."""
        found = list[bool]()
        for group, is_home in zip(groups["group_id"], groups["in_coordinator_partition"], strict=True):
            if group != self._group:
                self._group, self._has_home = group, bool(is_home)
            found.append(bool(is_home) or not self._has_home)
        return found


def read_some(
    lookup: Lookup, group_ids: Collection[str] | None, *, members: bool = False, offsets: bool = False
) -> Iterator[SomeGroups]:
    """Yield the groups by group id, some at a time; None means all groups.

    With their `members`, ordered by member id, and their assignments, and with their committed `offsets`, ordered by
    topic and partition, where wanted. Some hundred rows of each table are in memory at a time, or what one group has.
    """
    wanted = {"groups": True, "group_members": members, "member_assignments": members, "committed_offsets": offsets}
    tables = [_InOrder(lookup, table, group_ids) if wanted[table] else _InOrder() for table in _COLUMNS]
    while [table for table in tables if table.has_more()]:
        whole = [table.last_whole() for table in tables]
        until = min((group_id for group_id in whole if group_id is not None), default=None)
        yield SomeGroups(*(OfGroups(table.take(until)) for table in tables))


class _InOrder:
    """The rows of a table by group id, of which are taken those up to a group; without a table there are none."""

    def __init__(self, lookup: Lookup | None = None, table: str = "groups", ids: Collection[str] | None = None) -> None:
        names = (*_PLACE, *_COLUMNS[table].split())
        self._parts = lookup.parts(table, names, {"group_id": ids}, order=_ORDER[table]) if lookup else iter(())
        self._read: Columns = {name: [] for name in names}

    def has_more(self) -> bool:
        """Whether there are rows that were not taken."""
        if not self._ids:
            self._read = next(self._parts, self._read)
        return bool(self._ids)

    def last_whole(self) -> str | None:
        """Return the last group of which all rows are read; None where these are all."""
        parts = [self._read]
        while parts[-1]["group_id"][-1:] == parts[0]["group_id"][:1]:
            part = next(self._parts, None)
            if part is None:
                self._read = _joined(parts)
                return None
            parts.append(part)
        self._read = _joined(parts)
        return self._ids[bisect_left(self._ids, self._ids[-1]) - 1]

    def take(self, until: str | None) -> Columns:
        """Return the rows that are read of groups up to one, or all, and leave the others."""
        cut = len(self._ids) if until is None else bisect_right(self._ids, until)
        taken = {name: values[:cut] for name, values in self._read.items()}
        self._read = {name: values[cut:] for name, values in self._read.items()}
        return taken

    @property
    def _ids(self) -> Sequence[str]:
        return self._read["group_id"]


def _joined(parts: Sequence[Columns]) -> Columns:
    return parts[0] if len(parts) == 1 else {name: [*chain(*(part[name] for part in parts))] for name in parts[0]}
