"""The state tables' rows of one offsets partition, in the form of the model's snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]
_NOT_ASSIGNED = {"target", "pending_revocation"}


def snapshot(rows: Mapping[str, Iterable[Row]]) -> dict[str, Any]:
    """Return the snapshot. `rows` has groups, group_members, member_assignments and committed_offsets."""
    members: dict[str, list[Row]] = defaultdict(list)
    for row in rows["group_members"]:
        members[row["group_id"]].append(row)
    assigned: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows["member_assignments"]:
        if row["kind"] not in _NOT_ASSIGNED:
            assigned[row["group_id"], row["member_id"]].append(row)
    groups = sorted(rows["groups"], key=lambda row: row["group_id"])
    return {
        "groups": [_group(group, members[group["group_id"]], assigned) for group in groups],
        "offsets": sorted(
            map(_offset, rows["committed_offsets"]), key=lambda o: (o["group_id"], o["topic"], o["partition"])
        ),
    }


def _group(row: Row, members: list[Row], assigned: Mapping[tuple[str, str], list[Row]]) -> dict[str, Any]:
    is_classic = row["group_type"] == "Classic"
    found = {
        "group_id": row["group_id"],
        "type": row["group_type"],
        "state": row["state"],
        # The tables have the record's protocol type; brokers list newer types under the type's own name.
        "protocol_type": row["protocol_type"] if is_classic else row["group_type"].lower(),
        "protocol": row["protocol"],
    }
    if is_classic:
        found |= {"generation": row["generation"], "leader": row["leader_member_id"]}
    else:
        found |= {"epoch": row["group_epoch"], "assignment_epoch": row["assignment_epoch"]}
    ordered = sorted(members, key=lambda member: member["member_id"])
    described = [_member(member, assigned[row["group_id"], member["member_id"]], is_classic) for member in ordered]
    return found | {"members": described}


def _member(row: Row, assigned: list[Row], is_classic: bool) -> dict[str, Any]:
    names = ("member_id", "group_instance_id", "client_id", "client_host")
    found = {name: row[name] for name in names} | {"assignment": _assignment(assigned)}
    if is_classic:
        return found
    # A member with only its current assignment left: the broker's builder starts with empty texts.
    found |= {name: found[name] or "" for name in ("client_id", "client_host")}
    return found | {name: row[name] for name in ("member_epoch", "previous_member_epoch", "member_state")}


def _assignment(rows: list[Row]) -> list[dict[str, Any]]:
    of_tasks = any(row["subtopology_id"] is not None for row in rows)
    places: dict[Any, list[int]] = defaultdict(list)
    for row in rows:
        place = (row["kind"], row["subtopology_id"]) if of_tasks else row["topic"] or row["topic_id"]
        places[place].append(row["partition"])
    if of_tasks:
        return [
            {"role": role, "subtopology_id": subtopology, "partitions": sorted(partitions)}
            for (role, subtopology), partitions in sorted(places.items())
        ]
    return [{"topic": topic, "partitions": sorted(partitions)} for topic, partitions in sorted(places.items())]


def _offset(row: Row) -> dict[str, Any]:
    return {
        "group_id": row["group_id"],
        "topic": row["topic"],
        "partition": row["partition"],
        "offset": row["committed_offset"],
        "leader_epoch": row["leader_epoch"],
        "metadata": row["metadata"],
        "commit_timestamp": row["commit_timestamp_ms"],
    }


def without_empty_assignments(found: dict[str, Any]) -> dict[str, Any]:
    """Drop topics without partitions from the model's snapshot: the tables have one row per partition."""
    for group in found["groups"]:
        for member in group["members"]:
            member["assignment"] = [entry for entry in member["assignment"] if entry["partitions"]]
    return found
