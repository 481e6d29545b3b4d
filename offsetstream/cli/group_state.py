"""A group with its members, assignments and committed offsets, as the look-ups read it from the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
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


@dataclass
class Group:
    """A group as one offsets partition holds it: its row of ``groups`` and its rows of the other tables.

    A change of the number of offsets partitions can leave a group in a second one. ``is_current`` is false
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


def read_groups(lookup: Lookup, group_ids: Collection[str] | None) -> list[Group]:
    """Return the groups' own rows by group id, the current one of two copies first; None means all groups."""
    rows = _read(lookup, "groups", group_ids)
    coordinated = {row["group_id"] for row in rows if row["in_coordinator_partition"]}
    rows.sort(key=lambda row: (row["group_id"], not row["in_coordinator_partition"], row["offsets_partition"]))
    return [Group(row, bool(row["in_coordinator_partition"]) or row["group_id"] not in coordinated) for row in rows]


def add_members(lookup: Lookup, groups: Collection[Group], group_ids: Collection[str] | None) -> None:
    """Add the groups' members, ordered by member id, and their assignments."""
    members = _by_group(_read(lookup, "group_members", group_ids))
    assignments = _by_group(_read(lookup, "member_assignments", group_ids))
    for group in groups:
        group.members = sorted(members[_key(group.row)], key=lambda row: row["member_id"])
        group.assignments = assignments[_key(group.row)]


def add_offsets(lookup: Lookup, groups: Collection[Group], group_ids: Collection[str] | None) -> None:
    """Add the groups' committed offsets."""
    offsets = _by_group(_read(lookup, "committed_offsets", group_ids))
    for group in groups:
        group.offsets = offsets[_key(group.row)]


def _read(lookup: Lookup, table: str, group_ids: Collection[str] | None) -> list[Row]:
    return lookup.rows(table, [*_PLACE, *_COLUMNS[table].split()], {"group_id": group_ids})


def _by_group(rows: list[Row]) -> defaultdict[tuple[int, str], list[Row]]:
    groups: defaultdict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[_key(row)].append(row)
    return groups


def _key(row: Row) -> tuple[int, str]:
    return row["offsets_partition"], row["group_id"]
