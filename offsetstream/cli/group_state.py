"""Read groups with their members, assignments and committed offsets, in batches and by column."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offsetstream.tables.lookup import Lookup


Row = dict[str, Any]
Columns = Mapping[str, Sequence[Any]]
Copy = tuple[str, int]  # group id and offsets partition

# Order of `groups`: the current copy of a group comes first.
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
    """A group in one offsets partition: its row of `groups`, and its rows of the other tables.

    When the number of offsets partitions changes, an old copy of a group can stay in another partition. `is_current` is
    false for such a copy, unless it is the only one.
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


class GroupRows:
    """Rows of a table for some groups, by column; the rows of one copy of a group are contiguous."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    @cached_property
    def copies(self) -> list[Copy]:
        """The copy of a group that each row belongs to."""
        return list(zip(self.columns["group_id"], self.columns["offsets_partition"], strict=True))

    def range_of(self, copy: Copy) -> range:
        """Return the row numbers of a copy."""
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
class GroupBatch:
    """All copies of some groups by group id, the current copy first, and their rows of the other tables."""

    groups: GroupRows
    members: GroupRows
    assignments: GroupRows
    offsets: GroupRows

    @property
    def size(self) -> int:
        """The number of rows of all tables."""
        return sum(len(table.copies) for table in (self.groups, self.members, self.assignments, self.offsets))

    @cached_property
    def are_current(self) -> list[bool]:
        """Whether each row of `groups` is the current copy."""
        return Current().of(self.groups.columns)

    @cached_property
    def with_members(self) -> dict[int, Group]:
        """The copies that have members, by row number in `groups`."""
        members = {*self.members.copies}
        return {number: self.group(number) for number, copy in enumerate(self.groups.copies) if copy in members}

    def each(self) -> Iterator[Group]:
        """Yield the copies one by one."""
        return map(self.group, range(len(self.groups.copies)))

    def group(self, number: int) -> Group:
        """Return a copy of a group with all its rows."""
        copy = self.groups.copies[number]
        parts = (table.rows_of(copy) for table in (self.members, self.assignments, self.offsets))
        return Group(self.groups.row(number), self.are_current[number], *parts)


class Current:
    """Finds the current rows of `groups`, which come in the order `COPIES_IN_ORDER`."""

    def __init__(self) -> None:
        self._group: str | None = None
        self._has_home = False  # its first copy is in the partition where the coordinator keeps the group

    def of(self, groups: Columns) -> list[bool]:
        """Return whether each of the next rows is current."""
        found = list[bool]()
        for group, is_home in zip(groups["group_id"], groups["in_coordinator_partition"], strict=True):
            if group != self._group:
                self._group, self._has_home = group, bool(is_home)
            found.append(bool(is_home) or not self._has_home)
        return found


def read_batches(
    lookup: Lookup, group_ids: Collection[str] | None, *, members: bool = False, offsets: bool = False
) -> Iterator[GroupBatch]:
    """Yield groups by group id, in batches; None means all groups.

    `members` adds members, sorted by member id, and assignments; `offsets` adds committed offsets, sorted by topic and
    partition. A batch has some hundred rows of each table, or all rows of one group.
    """
    wanted = {"groups": True, "group_members": members, "member_assignments": members, "committed_offsets": offsets}
    tables = [_InOrder(lookup, table, group_ids) if wanted[table] else _InOrder() for table in _COLUMNS]
    while [table for table in tables if table.has_more()]:
        complete = [table.last_complete() for table in tables]
        until = min((group_id for group_id in complete if group_id is not None), default=None)
        yield GroupBatch(*(GroupRows(table.take(until)) for table in tables))


class _InOrder:
    """Rows of a table by group id, taken group by group; without a table there are no rows."""

    def __init__(self, lookup: Lookup | None = None, table: str = "groups", ids: Collection[str] | None = None) -> None:
        names = (*_PLACE, *_COLUMNS[table].split())
        self._parts = lookup.parts(table, names, {"group_id": ids}, order=_ORDER[table]) if lookup else iter(())
        self._read: Columns = {name: [] for name in names}

    def has_more(self) -> bool:
        """Return whether rows are left."""
        if not self._ids:
            self._read = next(self._parts, self._read)
        return bool(self._ids)

    def last_complete(self) -> str | None:
        """Return the last group whose rows are all read; None if the table is read to its end."""
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
        """Remove and return the rows of groups up to `until` (None: of all)."""
        cut = len(self._ids) if until is None else bisect_right(self._ids, until)
        taken = {name: values[:cut] for name, values in self._read.items()}
        self._read = {name: values[cut:] for name, values in self._read.items()}
        return taken

    @property
    def _ids(self) -> Sequence[str]:
        return self._read["group_id"]


def _joined(parts: Sequence[Columns]) -> Columns:
    return parts[0] if len(parts) == 1 else {name: [*chain(*(part[name] for part in parts))] for name in parts[0]}
