"""The bytes of group members, and how they appear in a group's JSON."""

import json
from base64 import b64encode
from typing import Any

import pytest

from offsetstream.codec import decode_records
from offsetstream.codec.embedded_protocols import (
    decode_assignment,
    decode_connect_assignment,
    decode_connect_subscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from offsetstream.codec.records import encode_record
from offsetstream.codec.wire import DecodeError

_SUBSCRIPTION = {
    "topics": ["b", "a", "b"],
    "userData": b"\0\1",
    "ownedPartitions": [],
    "generationId": -1,
    "rackId": None,
}
_ASSIGNMENT = {"assignedPartitions": [{"topic": "a", "partitions": [2, 0]}], "userData": None}


@pytest.mark.parametrize("version", [3, 4, 100, 32767])
def test_later_versions_are_read_as_the_highest_known_one(version: int) -> None:
    prefix = version.to_bytes(2, "big")
    assert decode_subscription(prefix + encode_subscription(_SUBSCRIPTION)[2:] + b"more") == _SUBSCRIPTION
    assert decode_assignment(prefix + encode_assignment(_ASSIGNMENT)[2:] + b"more") == _ASSIGNMENT


@pytest.mark.parametrize("decoder", [decode_subscription, decode_assignment, decode_connect_subscription])
def test_what_is_refused(decoder: Any) -> None:
    for data, reason in ((b"", "truncated"), (b"\0", "truncated"), (b"\xff\xff\0\0\0\0", "negative version -1")):
        with pytest.raises(DecodeError, match=reason):
            decoder(data)


def test_a_message_cut_at_any_byte_is_an_error() -> None:
    for decoder, data in (
        (decode_subscription, encode_subscription(_SUBSCRIPTION)),
        (decode_assignment, encode_assignment(_ASSIGNMENT)),
    ):
        for length in range(len(data)):
            with pytest.raises(DecodeError):
                decoder(data[:length])


_PARTITIONS = "00000001 0003 666f6f 00000002 00000000 00000001"
_OWNED = {"ownedPartitions": [{"topic": "foo", "partitions": [0, 1]}]}


# The vectors of reference 3.1, written by Kafka 4.4's own serialiser.
@pytest.mark.parametrize(
    ("version", "data", "more"),
    [
        (0, {}, ""),
        (1, _OWNED, _PARTITIONS),
        (2, _OWNED | {"generationId": 7}, f"{_PARTITIONS} 00000007"),
        (3, _OWNED | {"generationId": 7, "rackId": "r1"}, f"{_PARTITIONS} 00000007 0002 7231"),
    ],
)
def test_messages_of_each_version(version: int, data: dict[str, Any], more: str) -> None:
    subscription = {"topics": ["foo"], "userData": None, **data}
    encoded = bytes.fromhex(f"000{version} 00000001 0003 666f6f ffffffff {more}")
    assert (decode_subscription(encoded), encode_subscription(subscription, version)) == (subscription, encoded)
    empty: dict[str, Any] = {"topics": [], "userData": b""}
    assert decode_subscription(encode_subscription(empty, 0)) == empty
    assignment = {"assignedPartitions": _OWNED["ownedPartitions"], "userData": None}
    encoded = bytes.fromhex(f"000{version} {_PARTITIONS} ffffffff")
    assert (decode_assignment(encoded), encode_assignment(assignment, version)) == (assignment, encoded)


_CONNECT_ASSIGNMENT = bytes.fromhex("0001 0000 0003 6d2d31 0001 75 0000000000000009 ffffffff ffffffff 000000fa")
_CONNECT_DECODED = {"error": 0, "leader": "m-1", "leaderUrl": "u", "configOffset": 9}
_CONNECT_DECODED |= {"assignment": None, "revoked": None, "delay": 250}


def test_connect_workers_are_decoded() -> None:
    assert decode_connect_assignment(_CONNECT_ASSIGNMENT) == _CONNECT_DECODED
    state = (
        bytes.fromhex("0001 0001 77 0000000000000009")
        + len(_CONNECT_ASSIGNMENT).to_bytes(4, "big")
        + _CONNECT_ASSIGNMENT
    )
    assert decode_connect_subscription(state) == {"url": "w", "configOffset": 9, "allocation": _CONNECT_DECODED}
    # The last fields may be missing.
    assert decode_connect_subscription(state[:13]) == {"url": "w", "configOffset": 9, "allocation": None}
    assert decode_connect_assignment(_CONNECT_ASSIGNMENT[:-4]) == _CONNECT_DECODED | {"delay": 0}
    assert decode_connect_assignment(_CONNECT_ASSIGNMENT[:-12]) == _CONNECT_DECODED | {"delay": 0}
    with pytest.raises(DecodeError):
        decode_connect_assignment(_CONNECT_ASSIGNMENT[:-1])


def _decoded_json(key: Any, value: Any) -> tuple[Any, Any]:
    key_bytes, value_bytes = encode_record(key, value)
    (row,) = decode_records([key_bytes], [value_bytes]).to_pylist()
    assert row["error"] is None
    return json.loads(row["value_json"])["data"], json.loads(row["value_decoded_json"])["data"]


def _group(protocol_type: str, subscription: bytes, assignment: bytes) -> tuple[Any, Any]:
    member: dict[str, Any] = {
        "memberId": "m",
        "groupInstanceId": None,
        "clientId": "c",
        "clientHost": "/h",
        "rebalanceTimeout": 1,
    }
    member |= {"sessionTimeout": 2, "subscription": subscription, "assignment": assignment}
    data = {
        "protocolType": protocol_type,
        "generation": 1,
        "protocol": "range",
        "leader": "m",
        "currentStateTimestamp": 3,
    }
    return _decoded_json({"type": 2, "data": {"group": "g"}}, {"version": 3, "data": data | {"members": [member]}})


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def test_the_members_of_a_consumer_group_are_decoded() -> None:
    subscription, assignment = encode_subscription(_SUBSCRIPTION), encode_assignment(_ASSIGNMENT)
    plain, decoded = _group("consumer", subscription, assignment)
    assert plain["members"][0]["subscription"] == _text(subscription)
    (member,) = decoded.pop("members")
    assert member["subscription"] == _SUBSCRIPTION | {"userData": "AAE="}
    assert member["assignment"] == _ASSIGNMENT
    assert decoded == {name: cell for name, cell in plain.items() if name != "members"}


def test_an_empty_assignment_stays_base64() -> None:
    _, decoded = _group("consumer", b"\xff\xff", b"")
    assert decoded["members"][0]["subscription"] == "//8="
    assert decoded["members"][0]["assignment"] == ""


def test_the_members_of_a_connect_group_are_decoded() -> None:
    _, decoded = _group("connect", bytes.fromhex("0000 0001 77 0000000000000009"), _CONNECT_ASSIGNMENT)
    assert decoded["members"][0]["subscription"] == {"url": "w", "configOffset": 9}
    assert decoded["members"][0]["assignment"] == _CONNECT_DECODED


def test_members_of_other_protocol_types_stay_base64() -> None:
    plain, decoded = _group("sr", encode_subscription(_SUBSCRIPTION), b"")
    assert plain == decoded


_MODERN_MEMBER: dict[str, Any] = {"instanceId": None, "rackId": None, "clientId": "c", "clientHost": "/h"}
_MODERN_MEMBER |= {"subscribedTopicNames": [], "subscribedTopicRegex": None, "rebalanceTimeoutMs": 1}
_MODERN_MEMBER |= {"serverAssignor": None}


def test_the_classic_protocols_of_a_consumer_group_member_are_decoded() -> None:
    protocols = [{"name": "range", "metadata": encode_subscription(_SUBSCRIPTION)}, {"name": "x", "metadata": b"\0"}]
    value = {
        "version": 0,
        "data": _MODERN_MEMBER | {"classicMemberMetadata": {"sessionTimeoutMs": 5, "supportedProtocols": protocols}},
    }
    plain, decoded = _decoded_json({"type": 5, "data": {"groupId": "g", "memberId": "m"}}, value)
    supported = decoded["classicMemberMetadata"]["supportedProtocols"]
    assert supported[0]["metadata"] == _SUBSCRIPTION | {"userData": "AAE="}
    assert supported[1]["metadata"] == "AA=="
    assert plain["classicMemberMetadata"]["sessionTimeoutMs"] == 5


@pytest.mark.parametrize("classic", [None, "absent"])
def test_a_member_without_classic_protocols_has_nothing_to_decode(classic: str | None) -> None:
    data = _MODERN_MEMBER if classic else _MODERN_MEMBER | {"classicMemberMetadata": None}
    plain, decoded = _decoded_json({"type": 5, "data": {"groupId": "g", "memberId": "m"}}, {"version": 0, "data": data})
    assert plain == decoded == data
