"""Cells made from real records: each value was encoded and decoded by the codec."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from offsetstream.codec.decoding import decode_records
from offsetstream.codec.records import encode_record
from offsetstream.coordinator.groups import derive_group
from offsetstream.coordinator.rows import Cell, GroupRows, Row

GROUP = "g"
T1 = "AAAAAAAAAAAAAAAAAAAAAQ"
T2 = "AAAAAAAAAAAAAAAAAAAAAg"
# Reference 3.1's golden vector: topic foo, partitions 0 and 1.
FOO_0_1 = bytes.fromhex("0003 00000001 0003 666f6f 00000002 00000000 00000001 ffffffff")


def cell(key_type: int, offset: int, value: Mapping[str, Any], *, version: int = 0, **key: str) -> Cell:
    data = {("group" if key_type == 2 else "groupId"): GROUP, **key}
    record = encode_record({"type": key_type, "data": data}, {"version": version, "data": dict(value)})
    (decoded,) = decode_records([record[0]], [record[1]]).to_pylist()
    assert decoded["error"] is None
    key_json, value_json = json.loads(decoded["key_json"]), json.loads(decoded["value_json"])
    timestamp = 1_700_000_000_000 + offset
    return Cell(key_type, key_json["data"], value_json["data"], offset, timestamp)


def classic_member(member_id: str, assignment: bytes = FOO_0_1, **fields: Any) -> dict[str, Any]:
    return {
        "memberId": member_id,
        "groupInstanceId": None,
        "clientId": "client",
        "clientHost": "/10.0.0.1",
        "rebalanceTimeout": 300_000,
        "sessionTimeout": 45_000,
        "subscription": "",
        "assignment": base64.b64encode(assignment).decode(),
    } | fields


def classic(offset: int, members: list[dict[str, Any]], *, version: int = 3, **fields: Any) -> Cell:
    value = {
        "protocolType": "consumer",
        "generation": 3,
        "protocol": "range",
        "leader": "m1",
        "currentStateTimestamp": 1_600_000_000_000,
        "members": members,
    }
    if version < 2:
        del value["currentStateTimestamp"]
    return cell(2, offset, value | fields, version=version)


def simple(offset: int) -> Cell:
    """Return the record of a JoinGroup that wrote no other record (reference 5.5)."""
    return classic(offset, [], protocolType="", generation=0, protocol=None, leader=None)


def consumer_member(offset: int, member_id: str, **fields: Any) -> Cell:
    value = {
        "instanceId": None,
        "rackId": None,
        "clientId": "client",
        "clientHost": "/10.0.0.1",
        "subscribedTopicNames": ["t"],
        "subscribedTopicRegex": "",
        "rebalanceTimeoutMs": 45_000,
        "serverAssignor": None,
        "classicMemberMetadata": None,
    }
    if "assignors" in fields:  # the layout of 3.7
        del value["classicMemberMetadata"]
    return cell(5, offset, value | fields, memberId=member_id)


def current(offset: int, member_id: str, epoch: int, *, key_type: int = 8, state: int = 0, **fields: Any) -> Cell:
    value = {
        "memberEpoch": epoch,
        "previousMemberEpoch": epoch - 1,
        "state": state,
        "assignedPartitions": [{"topicId": T1, "partitions": [0, 1]}],
    }
    if key_type == 8:
        value["partitionsPendingRevocation"] = []
    return cell(key_type, offset, value | fields, memberId=member_id)


def consumer_group(epoch: int = 5, assignment_epoch: int = 5, member_epoch: int = 5) -> list[Cell]:
    """Return a new group's records in the order in which brokers write them (reference 5.10 item 4)."""
    return [
        consumer_member(10, "m1"),
        cell(3, 11, {"epoch": epoch}),
        cell(7, 12, {"topicPartitions": [{"topicId": T1, "partitions": [0, 1]}]}, memberId="m1"),
        cell(6, 13, {"assignmentEpoch": assignment_epoch}),
        current(14, "m1", member_epoch),
    ]


def rows_of(*cells: Cell) -> GroupRows:
    rows = derive_group(cells, group_id=GROUP, exists=True)
    assert rows is not None
    return rows


def brief(assignments: list[Row]) -> list[tuple[Any, ...]]:
    """Return kind, subtopology or topic, partition and epoch of each row."""
    return [
        (
            row["kind"],
            row["subtopology_id"] or row["topic_id"] or row["topic"],
            row["partition"],
            row["assignment_epoch"],
        )
        for row in assignments
    ]
