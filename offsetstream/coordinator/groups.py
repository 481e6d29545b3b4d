"""Derive one group from its cells as the coordinator does: the group, its members and their assignments.

A classic group has one record, GroupMetadata (reference 1.3, 4.6, 5.5). `modern_groups` has the other types.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from offsetstream.codec.embedded_protocols import decode_assignment, decode_subscription
from offsetstream.codec.wire import DecodeError
from offsetstream.coordinator.modern_groups import MODERN_TYPES, MemberCache, ModernType, derive_modern_group
from offsetstream.coordinator.rows import (
    AssignmentKey,
    Assignments,
    Cell,
    GroupRows,
    NamedPartitions,
    Row,
    assignments_of,
    group_row,
    latest,
    member_row,
    subscription_row,
)

_CLASSIC = 2
_CONSUMER = "consumer"  # the coordinator can read assignments and subscriptions of this protocol type only


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
    classic = next((cell for cell in cells if cell.key_type == _CLASSIC), None)
    modern = _modern_group(cells, classic)
    if modern is not None:
        return derive_modern_group(modern[0], group_id, modern[1], topic_names, known)
    if classic is not None:
        return _classic_group(group_id, classic)
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
    if classic is not None and not _is_simple(classic):
        candidates = [
            (modern, type_cells) for modern, type_cells in candidates if _epoch_offset(modern, type_cells) >= 0
        ]
    if not candidates:
        return None
    return max(candidates, key=lambda item: (_epoch_offset(*item), latest(item[1]).record_offset))


def _epoch_offset(modern: ModernType, cells: list[Cell]) -> int:
    return max((cell.record_offset for cell in cells if cell.key_type == modern.group), default=-1)


def _classic_group(group_id: str, cell: Cell) -> GroupRows:
    value = cell.value
    members: dict[str, dict[str, Any]] = {member["memberId"]: member for member in value["members"]}
    timestamp = value.get("currentStateTimestamp", -1)
    return GroupRows(
        group_row(
            cell,
            group_id=group_id,
            group_type="Classic",
            state="Stable" if members else "Empty",
            is_simple=_is_simple(cell),
            protocol_type=value["protocolType"] or None,
            protocol=value["protocol"],
            generation=value["generation"],
            leader_member_id=next(iter(members), None) if value["leader"] is None else value["leader"],
            member_count=len(members),
            state_timestamp_ms=None if timestamp == -1 else timestamp,
        ),
        [_member(group_id, cell, member) for member in members.values()],
        _assignments(group_id, cell, members),
        _subscriptions(group_id, cell, members),
    )


def _is_simple(cell: Cell) -> bool:
    """Whether the record makes a simple group, which records of newer group types replace (reference 5.7)."""
    return not cell.value["protocolType"] and not cell.value["members"]


def _member(group_id: str, cell: Cell, member: dict[str, Any]) -> Row:
    session_timeout = member["sessionTimeout"]
    rebalance_timeout = member.get("rebalanceTimeout", -1)  # version 0 has none
    return member_row(
        cell,
        group_id=group_id,
        member_id=member["memberId"],
        group_instance_id=member.get("groupInstanceId"),
        client_id=member["clientId"],
        client_host=member["clientHost"],
        session_timeout_ms=session_timeout,
        rebalance_timeout_ms=session_timeout if rebalance_timeout == -1 else rebalance_timeout,
        is_classic_protocol=True,
    )


def _assignments(group_id: str, cell: Cell, members: Mapping[str, dict[str, Any]]) -> list[Assignments]:
    if cell.value["protocolType"] != _CONSUMER:
        return []
    return [
        assignments_of(cell, group_id, member_id, _assigned_partitions(base64.b64decode(member["assignment"])))
        for member_id, member in members.items()
    ]


def _assigned_partitions(assignment: bytes) -> Iterator[tuple[AssignmentKey, NamedPartitions]]:
    """Yield the assigned partitions; none for empty bytes and other protocols, which are normal (reference 5.10)."""
    try:
        decoded = decode_assignment(assignment)
    except DecodeError:
        return
    for entry in decoded["assignedPartitions"]:
        yield ("assigned", None, None, entry["topic"]), (entry["topic"], dict.fromkeys(entry["partitions"]))


def _subscriptions(group_id: str, cell: Cell, members: Mapping[str, dict[str, Any]]) -> list[Row]:
    if cell.value["protocolType"] != _CONSUMER:
        return []
    return [
        subscription_row(cell, group_id=group_id, member_id=member_id, topic=topic, subscribed_by="name")
        for member_id, member in members.items()
        for topic in _topics(member["subscription"])
    ]


@lru_cache(maxsize=64)  # small, as an entry may have a megabyte; members of a group often repeat one subscription
def _topics(subscription: str) -> tuple[str, ...]:
    """Return the topics of a subscription in base64, each once."""
    try:
        decoded = decode_subscription(base64.b64decode(subscription))
    except DecodeError:  # empty bytes are normal (reference 5.10)
        return ()
    return tuple(dict.fromkeys(decoded["topics"]))


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
