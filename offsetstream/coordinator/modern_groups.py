"""Derive consumer (KIP-848), share (KIP-932) and streams (KIP-1071) groups from their records (reference 1.4-1.6, 5.7).

The three types have the same structure. A group has a record with its epoch and one with the epoch of its target
assignment. A member has up to three records: its metadata, its target assignment and its current assignment. Compaction
and the order of writing may leave out a record; a broker's initial value is then used (4.3.1: ModernGroup, StreamsGroup
and the builders of the members).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import is_

from offsetstream.coordinator.cells import Cell, latest
from offsetstream.coordinator.modern_assignments import (
    Names,
    current_partitions,
    current_tasks,
    target_partitions,
    target_tasks,
)
from offsetstream.coordinator.modern_members import MemberCells, consumer_member, share_member, streams_member
from offsetstream.coordinator.rows import Assignments, GroupRows, Row, group_row
from offsetstream.coordinator.subscriptions import SubscriptionSources, modern_subscriptions

_INITIAL_EPOCH = 1
_NO_TOPOLOGY_EPOCH = -1  # validatedTopologyEpoch of a record without one
_TOPOLOGY = 23


@dataclass(frozen=True)
class ModernType:
    """A group type: its name in the Admin API, the key types of its records, and the functions that read them."""

    name: str
    group: int
    member: int
    target_epoch: int
    target: int
    current: int
    others: frozenset[int]  # they only make the group exist
    member_row: Callable[[str, str, MemberCells], Row]
    targets: Callable[[str, str, Cell, Names], Assignments]
    currents: Callable[[str, str, Cell, Names], Assignments]

    @cached_property
    def key_types(self) -> frozenset[int]:
        """All key types whose live records make a group of this type exist."""
        return self.others | {self.group, self.member, self.target_epoch, self.target, self.current}


CONSUMER = ModernType(
    "Consumer", 3, 5, 6, 7, 8, frozenset({4, 16}), consumer_member, target_partitions, current_partitions
)
SHARE = ModernType("Share", 11, 10, 12, 13, 14, frozenset({15}), share_member, target_partitions, current_partitions)
STREAMS = ModernType("Streams", 17, 19, 20, 21, 22, frozenset({_TOPOLOGY}), streams_member, target_tasks, current_tasks)
MODERN_TYPES = (CONSUMER, SHARE, STREAMS)


@dataclass(frozen=True)
class MemberRows:
    """The rows of one member, and the records that they come from."""

    cells: MemberCells
    sources: tuple[Cell | None, Cell | None]
    member: Row
    assignments: list[Assignments]
    subscriptions: list[Row]

    def is_from(self, cells: MemberCells, sources: tuple[Cell | None, Cell | None]) -> bool:
        """Whether the rows come from exactly these records."""
        return self.cells.is_same(cells) and all(map(is_, self.sources, sources))


MemberCache = dict[str, MemberRows]  # by member id


def derive_modern_group(
    modern: ModernType, group_id: str, cells: Sequence[Cell], names: Names, known: MemberCache | None = None
) -> GroupRows:
    """Return the rows of a group of the type `modern`. `cells` are its records; there must be at least one.

    `known` has the member rows of the previous call, and is updated: only members with other records are derived again.
    """
    by_key_type = {cell.key_type: cell for cell in cells if "memberId" not in cell.key}
    members = _derived_members(modern, group_id, cells, names, {} if known is None else known)
    member_rows = [rows.member for rows in members]
    group_epoch = _epoch(by_key_type.get(modern.group), "epoch")
    assignment_epoch = _epoch(by_key_type.get(modern.target_epoch), "assignmentEpoch")
    return GroupRows(
        group_row(
            latest(cells),
            group_id=group_id,
            group_type=modern.name,
            state=_state(modern, by_key_type, group_epoch, assignment_epoch, member_rows),
            is_simple=False,
            group_epoch=group_epoch,
            assignment_epoch=assignment_epoch,
            member_count=len(members),
        ),
        member_rows,
        [assignments for rows in members for assignments in rows.assignments],
        [row for rows in members for row in rows.subscriptions],
    )


def _derived_members(
    modern: ModernType, group_id: str, cells: Sequence[Cell], names: Names, known: MemberCache
) -> Collection[MemberRows]:
    sources = SubscriptionSources.of(cells)
    members = _members(modern, cells)
    for removed in known.keys() - members.keys():
        del known[removed]
    for member_id, member_cells in members.items():
        used_sources = (sources.regex_record(member_cells.metadata), sources.topology)
        if member_id not in known or not known[member_id].is_from(member_cells, used_sources):
            known[member_id] = MemberRows(
                member_cells,
                used_sources,
                modern.member_row(group_id, member_id, member_cells),
                _assignments(modern, group_id, member_id, member_cells, names),
                modern_subscriptions(group_id, member_id, member_cells.metadata, sources)
                if member_cells.metadata
                else [],
            )
    return [known[member_id] for member_id in members]


def _members(modern: ModernType, cells: Sequence[Cell]) -> dict[str, MemberCells]:
    by_type: dict[int, dict[str, Cell]] = {modern.member: {}, modern.target: {}, modern.current: {}}
    for cell in cells:
        if cell.key_type in by_type:
            by_type[cell.key_type][cell.member_id] = cell
    metadata, target, current = by_type[modern.member], by_type[modern.target], by_type[modern.current]
    # A target assignment alone makes no member; each of the other two records does.
    return {
        member_id: MemberCells(metadata.get(member_id), target.get(member_id), current.get(member_id))
        for member_id in sorted(metadata.keys() | current.keys())
    }


def _epoch(cell: Cell | None, field: str) -> int:
    epoch: int = _INITIAL_EPOCH if cell is None else cell.value[field]
    return epoch


def _state(
    modern: ModernType,
    by_key_type: dict[int, Cell],
    group_epoch: int,
    assignment_epoch: int,
    members: Sequence[Row],
) -> str:
    if not members:
        return "Empty"
    if modern is SHARE:
        return "Stable"
    if modern is STREAMS and not _is_ready(by_key_type):
        return "NotReady"
    if group_epoch > assignment_epoch:
        return "Assigning"
    # A static member that left temporarily has epoch -2, so the group stays Reconciling (reference 5.10 item 3).
    if any(row["member_state"] != "STABLE" or row["member_epoch"] != assignment_epoch for row in members):
        return "Reconciling"
    return "Stable"


def _is_ready(by_key_type: dict[int, Cell]) -> bool:
    """Whether the group has the topology that its group record states as validated."""
    topology, group = by_key_type.get(_TOPOLOGY), by_key_type.get(STREAMS.group)
    validated = 0 if group is None else group.value.get("validatedTopologyEpoch", _NO_TOPOLOGY_EPOCH)
    return topology is not None and bool(topology.value["epoch"] == validated)


def _assignments(
    modern: ModernType, group_id: str, member_id: str, cells: MemberCells, names: Names
) -> list[Assignments]:
    current = [modern.currents(group_id, member_id, cells.current, names)] if cells.current else []
    target = [modern.targets(group_id, member_id, cells.target, names)] if cells.target else []
    return current + target
