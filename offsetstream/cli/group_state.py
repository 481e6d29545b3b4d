"""A group with its members, assignments and committed offsets, as the look-ups read it from the tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

from offsetstream.tables.lookup import Lookup

Row = dict[str, Any]

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
_PARTS = ("group_members", "member_assignments", "committed_offsets")
_ORDER = {"group_members": ("group_id", "member_id")}


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


def read_groups(
    lookup: Lookup, group_ids: Collection[str] | None, *, members: bool = False, offsets: bool = False
) -> Iterator[Group]:
    """Yield the groups by group id, the current one of two copies first; None means all groups.

    With their `members`, ordered by member id, and their assignments, and with their committed `offsets`, where
    wanted. Only what belongs to one group id is in memory at a time.
    """
    tables = (*(("group_members", "member_assignments") if members else ()), *(("committed_offsets",) * offsets))
    own = {table: _OfGroup(_read(lookup, table, group_ids)) for table in tables}
    for group_id, copies in groupby(_read(lookup, "groups", group_ids), itemgetter("group_id")):
        rows = sorted(copies, key=lambda row: (not row["in_coordinator_partition"], row["offsets_partition"]))
        found = {table: of_group.rows(group_id) for table, of_group in own.items()}
        for row in rows:
            is_current = bool(row["in_coordinator_partition"]) or not rows[0]["in_coordinator_partition"]
            yield Group(row, is_current, *(_in(row, found.get(table, [])) for table in _PARTS))


class _OfGroup:
    """The rows of a table in the order of their group ids, of which each group takes its own in turn."""

    def __init__(self, rows: Iterator[Row]) -> None:
        self._groups = groupby(rows, itemgetter("group_id"))
        self._next = next(self._groups, None)

    def rows(self, group_id: str) -> list[Row]:
        while self._next is not None and self._next[0] < group_id:
            self._next = next(self._groups, None)
        if self._next is None or self._next[0] != group_id:
            return []
        found = list(self._next[1])
        self._next = next(self._groups, None)
        return found


def _in(place: Row, rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["offsets_partition"] == place["offsets_partition"]]


def _read(lookup: Lookup, table: str, group_ids: Collection[str] | None) -> Iterator[Row]:
    order = _ORDER.get(table, ("group_id",))
    return lookup.stream(table, [*_PLACE, *_COLUMNS[table].split()], {"group_id": group_ids}, order=order)
