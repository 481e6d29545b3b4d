"""The vectors of reference 2.8 and 3.1, written by Kafka 4.4's own serialiser."""

from typing import Any

import pytest

from offsetstream.codec.embedded_protocols import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from offsetstream.codec.records import decode_key, decode_value, encode_record, encode_value

_COMMIT = {"offset": 100, "metadata": "meta", "commitTimestamp": 1234}
_TOPIC_ID = "MKXx1fIkQy2J9jXHhK8m1w"
_UUID = "30a5f1d5f224432d89f635c784af26d7"
_SUBSCRIPTION = "0000 00000001 0003 666f6f ffffffff"
_ASSIGNMENT = "0000 00000001 0003 666f6f 00000002 00000000 00000001 ffffffff"
_MEMBER_TAIL = f"00002710 0000000f {_SUBSCRIPTION} 0000001b {_ASSIGNMENT}"
_MEMBER = {"memberId": "m-1", "clientId": "c", "clientHost": "/h", "sessionTimeout": 10000}
_GROUP = {"protocolType": "consumer", "generation": 5, "protocol": "range", "leader": "m-1"}
_GROUP_HEAD = "0008 636f6e73756d6572 00000005 0005 72616e6765 0003 6d2d31"
_EMPTY = {"protocolType": "consumer", "generation": 6, "protocol": None, "leader": None, "currentStateTimestamp": 1234}
_MODERN: dict[str, Any] = {
    "instanceId": None,
    "rackId": "r",
    "clientId": "c",
    "clientHost": "/h",
    "subscribedTopicNames": ["foo"],
}
_MODERN |= {"subscribedTopicRegex": "", "rebalanceTimeoutMs": 1000, "serverAssignor": None}
_MODERN_HEX = "0000 00 02 72 02 63 03 2f68 02 04 666f6f 01 000003e8 00"
_CLASSIC = {"sessionTimeoutMs": 5000, "supportedProtocols": [{"name": "range", "metadata": b"\1\2"}]}
_PARTITIONS = {"topicId": _TOPIC_ID, "partitions": [0, 1]}
_CURRENT = {"memberEpoch": 11, "previousMemberEpoch": 10, "state": 0}
_STREAMS: dict[str, Any] = {
    "instanceId": None,
    "rackId": None,
    "clientId": "c",
    "clientHost": "/h",
    "rebalanceTimeoutMs": -1,
}
_STREAMS |= {"topologyEpoch": 1, "processId": "p"}
_STREAMS_HEX = "0000 00 00 02 63 03 2f68 ffffffff 00000001 02 70"


def _members(*between: tuple[str, Any]) -> list[dict[str, Any]]:
    return [_MEMBER | dict(between) | {"subscription": _hex(_SUBSCRIPTION), "assignment": _hex(_ASSIGNMENT)}]


def _hex(text: str) -> bytes:
    return bytes.fromhex(text)


@pytest.mark.parametrize("key_type", [0, 1])
def test_commit_keys(key_type: int) -> None:
    data = {"group": "testgroup", "topic": "topic", "partition": 3}
    expected = _hex(f"000{key_type} 0009 7465737467726f7570 0005 746f706963 00000003")
    assert encode_record({"type": key_type, "data": data}, None) == (expected, None)
    assert decode_key(expected) == (key_type, data)


def test_group_keys() -> None:
    assert decode_key(_hex("0002 0009 7465737467726f7570")) == (2, {"group": "testgroup"})
    assert decode_key(_hex("0003 0001 67")) == (3, {"groupId": "g"})


_REBALANCE = ("rebalanceTimeout", 300000)
_INSTANCE = ("groupInstanceId", "i-1")
_V4_GROUP = (
    "0004 09 636f6e73756d6572 00000005 06 72616e6765 04 6d2d31 00000000000004d2 02 04 6d2d31 04 692d31 02 63 03 2f68 "
    f"000493e0 00002710 10 {_SUBSCRIPTION} 1c {_ASSIGNMENT} 00 00"
)


@pytest.mark.parametrize(
    ("key_type", "version", "data", "expected"),
    [
        (1, 0, _COMMIT, "0000 0000000000000064 0004 6d657461 00000000000004d2"),
        (
            1,
            1,
            _COMMIT | {"expireTimestamp": 5678},
            "0001 0000000000000064 0004 6d657461 00000000000004d2 000000000000162e",
        ),
        (1, 2, _COMMIT, "0002 0000000000000064 0004 6d657461 00000000000004d2"),
        (1, 3, _COMMIT | {"leaderEpoch": 10}, "0003 0000000000000064 0000000a 0004 6d657461 00000000000004d2"),
        (1, 4, _COMMIT | {"leaderEpoch": 10}, "0004 0000000000000064 0000000a 05 6d657461 00000000000004d2 00"),
        (
            1,
            4,
            _COMMIT | {"leaderEpoch": 10, "topicId": _TOPIC_ID},
            f"0004 0000000000000064 0000000a 05 6d657461 00000000000004d2 01 00 10 {_UUID}",
        ),
        (
            1,
            4,
            {"offset": 0, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 0},
            "0004 0000000000000000 ffffffff 01 0000000000000000 00",
        ),
        (
            2,
            0,
            _GROUP | {"members": _members()},
            f"0000 {_GROUP_HEAD} 00000001 0003 6d2d31 0001 63 0002 2f68 {_MEMBER_TAIL}",
        ),
        (
            2,
            1,
            _GROUP | {"members": _members(_REBALANCE)},
            f"0001 {_GROUP_HEAD} 00000001 0003 6d2d31 0001 63 0002 2f68 000493e0 {_MEMBER_TAIL}",
        ),
        (
            2,
            2,
            _GROUP | {"currentStateTimestamp": 1234, "members": _members(_REBALANCE)},
            f"0002 {_GROUP_HEAD} 00000000000004d2 00000001 0003 6d2d31 0001 63 0002 2f68 000493e0 {_MEMBER_TAIL}",
        ),
        (
            2,
            3,
            _GROUP | {"currentStateTimestamp": 1234, "members": _members(_REBALANCE, _INSTANCE)},
            f"0003 {_GROUP_HEAD} 00000000000004d2 00000001 0003 6d2d31 0003 692d31 0001 63 0002 2f68 000493e0"
            f"{_MEMBER_TAIL}",
        ),
        (2, 4, _GROUP | {"currentStateTimestamp": 1234, "members": _members(_REBALANCE, _INSTANCE)}, _V4_GROUP),
        (2, 3, _EMPTY | {"members": []}, "0003 0008 636f6e73756d6572 00000006 ffff ffff 00000000000004d2 00000000"),
        (2, 4, _EMPTY | {"members": []}, "0004 09 636f6e73756d6572 00000006 00 00 00000000000004d2 01 00"),
        (3, 0, {"epoch": 10}, "0000 0000000a 00"),
        (3, 0, {"epoch": 10, "metadataHash": 1}, "0000 0000000a 01 00 08 0000000000000001"),
        (5, 0, _MODERN, f"{_MODERN_HEX} 00"),
        (5, 0, _MODERN | {"classicMemberMetadata": None}, f"{_MODERN_HEX} 01 00 01 00"),
        (
            5,
            0,
            _MODERN | {"classicMemberMetadata": _CLASSIC},
            f"{_MODERN_HEX} 01 00 11 01 00001388 02 06 72616e6765 03 0102 00 00",
        ),
        (
            8,
            0,
            _CURRENT | {"assignedPartitions": [_PARTITIONS], "partitionsPendingRevocation": []},
            f"0000 0000000b 0000000a 00 02 {_UUID} 03 00000000 00000001 00 01 00",
        ),
        (
            8,
            0,
            _CURRENT
            | {"assignedPartitions": [_PARTITIONS | {"assignmentEpochs": [10, 11]}], "partitionsPendingRevocation": []},
            f"0000 0000000b 0000000a 00 02 {_UUID} 03 00000000 00000001 01 00 09 03 0000000a 0000000b 01 00",
        ),
        (19, 0, _STREAMS | {"userEndpoint": None, "clientTags": []}, f"{_STREAMS_HEX} ff 01 00"),
        (
            19,
            0,
            _STREAMS | {"userEndpoint": {"host": "h", "port": 65535}, "clientTags": []},
            f"{_STREAMS_HEX} 01 02 68 ffff 00 01 00",
        ),
    ],
)
def test_values(key_type: int, version: int, data: dict[str, Any], expected: str) -> None:
    assert encode_value(key_type, {"version": version, "data": data}) == _hex(expected)
    assert decode_value(key_type, _hex(expected)) == (version, data)


_OWNED = {"ownedPartitions": [{"topic": "foo", "partitions": [0, 1]}]}


@pytest.mark.parametrize(
    ("version", "data", "more"),
    [
        (0, {}, ""),
        (1, _OWNED, "00000001 0003 666f6f 00000002 00000000 00000001"),
        (2, _OWNED | {"generationId": 7}, "00000001 0003 666f6f 00000002 00000000 00000001 00000007"),
        (
            3,
            _OWNED | {"generationId": 7, "rackId": "r1"},
            "00000001 0003 666f6f 00000002 00000000 00000001 00000007 0002 7231",
        ),
    ],
)
def test_subscriptions(version: int, data: dict[str, Any], more: str) -> None:
    expected = _hex(f"000{version} 00000001 0003 666f6f ffffffff {more}")
    subscription = {"topics": ["foo"], "userData": None, **data}
    assert decode_subscription(expected) == subscription
    assert encode_subscription(subscription, version) == expected


@pytest.mark.parametrize("version", range(4))
def test_assignments(version: int) -> None:
    expected = _hex(f"000{version} {_ASSIGNMENT[5:]}")
    assignment = {"assignedPartitions": [{"topic": "foo", "partitions": [0, 1]}], "userData": None}
    assert decode_assignment(expected) == assignment
    assert encode_assignment(assignment, version) == expected
