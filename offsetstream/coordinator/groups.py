"""Derive one group from its cells as the coordinator does: the group, its members and their assignments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from offsetstream.coordinator.cells import Cell, latest
from offsetstream.coordinator.classic_group import KEY_TYPE as CLASSIC_KEY_TYPE
from offsetstream.coordinator.classic_group import derive_classic_group, is_simple_record
from offsetstream.coordinator.modern_groups import MODERN_TYPES, MemberCache, ModernType, derive_modern_group
from offsetstream.coordinator.rows import GroupRows, group_row

__all__ = ["Cell", "GroupRows", "derive_group"]


def derive_group(
    cells: Sequence[Cell],
    *,
    group_id: str,
    exists: bool,
    topic_names: Mapping[str, str] = MappingProxyType({}),
    known: MemberCache | None = None,
) -> GroupRows | None:
    """Return the rows of the group `group_id` from its live cells, in any order; None if there is no group.

    `exists` says whether the coordinator has the group even if no cell makes one. It is then a group with offsets only.
    The result is that of a broker that replays exactly these records (reference 4.6, 5.5, 5.7, 5.8). Only a failed load
    is different: where a broker would fail, the latest record of the group wins here. A topic id that is not in
    `topic_names` is used as the name. If you derive a group repeatedly, pass the same `known`: it keeps the rows of
    unchanged members.
    """
    classic = next((cell for cell in cells if cell.key_type == CLASSIC_KEY_TYPE), None)
    modern = _modern_group(cells, classic)
    if modern is not None:
        return derive_modern_group(modern[0], group_id, modern[1], topic_names, known)
    if classic is not None:
        return derive_classic_group(group_id, classic)
    return _offsets_only(group_id) if exists else None


def _modern_group(cells: Sequence[Cell], classic: Cell | None) -> tuple[ModernType, list[Cell]] | None:
    # A classic record replaces any earlier group (reference 5.5), so only later cells count.
    start = -1 if classic is None else classic.record_offset
    later = [cell for cell in cells if cell.record_offset > start]
    candidates = [
        (modern, type_cells)
        for modern in MODERN_TYPES
        if (type_cells := [c for c in later if c.key_type in modern.key_types])
    ]
    if classic is not None and not is_simple_record(classic):
        candidates = [
            (modern, type_cells) for modern, type_cells in candidates if _epoch_offset(modern, type_cells) >= 0
        ]
    if not candidates:
        return None
    return max(candidates, key=lambda item: (_epoch_offset(*item), latest(item[1]).record_offset))


def _epoch_offset(modern: ModernType, cells: list[Cell]) -> int:
    return max((cell.record_offset for cell in cells if cell.key_type == modern.group), default=-1)


def _offsets_only(group_id: str) -> GroupRows:
    # Such a group has no record (reference 4.7 item 4, 5.3).
    return GroupRows(
        group_row(
            None,
            group_id=group_id,
            group_type="Classic",
            state="Empty",
            is_simple=True,
            generation=0,
            member_count=0,
        )
    )
