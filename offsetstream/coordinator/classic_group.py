"""Derive a classic group from its one record, GroupMetadata (reference 1.3, 4.6, 5.5)."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from offsetstream.codec.embedded_protocols import decode_assignment
from offsetstream.codec.wire import DecodeError
from offsetstream.coordinator.cells import Cell
from offsetstream.coordinator.rows import (
    AssignmentKey,
    Assignments,
    GroupRows,
    NamedPartitions,
    Row,
    assignments_of,
    group_row,
    member_row,
)
from offsetstream.coordinator.subscriptions import classic_subscriptions

KEY_TYPE = 2
_CONSUMER = "consumer"  # the coordinator can read assignments of this protocol type only


def is_simple_record(cell: Cell) -> bool:
    """Whether the record makes a simple group, which records of newer group types replace (reference 5.7)."""
    return not cell.value["protocolType"] and not cell.value["members"]


def derive_classic_group(group_id: str, cell: Cell) -> GroupRows:
    """Return the rows of a classic group. `cell` is its GroupMetadata record."""
    value = cell.value
    members: dict[str, dict[str, Any]] = {member["memberId"]: member for member in value["members"]}
    timestamp = value.get("currentStateTimestamp", -1)
    return GroupRows(
        group_row(
            cell,
            group_id=group_id,
            group_type="Classic",
            state="Stable" if members else "Empty",
            is_simple=is_simple_record(cell),
            protocol_type=value["protocolType"] or None,
            protocol=value["protocol"],
            generation=value["generation"],
            leader_member_id=_leader(value["leader"], members),
            member_count=len(members),
            state_timestamp_ms=None if timestamp == -1 else timestamp,
        ),
        [_member(group_id, cell, member) for member in members.values()],
        _assignments(group_id, cell, members),
        classic_subscriptions(group_id, cell, members.values()),
    )


def _leader(leader: str | None, members: dict[str, Any]) -> str | None:
    return next(iter(members), None) if leader is None else leader


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
