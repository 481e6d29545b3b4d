"""What the console consumer's formatters print (reference 8.2, 9.5); tests/oracle holds it against Kafka's own."""

from __future__ import annotations

import json

import pytest

from offsetstream.codec.kafka_text import (
    GROUP_METADATA_FORMATTER,
    OFFSETS_FORMATTER,
    SHARE_GROUP_FORMATTER,
    kafka_json,
)
from tests.conformance.builder import Pair, classic, classic_tombstone, commit, forget, share_member

KAFKA_CLASS = ("OffsetMessageFormatterTest", "GroupMetadataMessageFormatterTest", "ShareGroupMessageFormatterTest")
COMMIT_KEY = {"type": 1, "data": {"group": "foo", "topic": "t", "partition": 0}}
GROUP_KEY = {"type": 2, "data": {"group": "foo"}}
SHARE_KEY = {"type": 10, "data": {"groupId": "foo", "memberId": "m1"}}
SHARE = {"rackId": None, "clientId": "clientId", "clientHost": "clientHost", "subscribedTopicNames": ["foo"]}
EMPTY_GROUP = {
    "protocolType": "consumer",
    "generation": 935,
    "protocol": None,
    "leader": None,
    "currentStateTimestamp": 1_700_000_000_000,
    "members": [],
}


def offset(version: int, **fields: object) -> dict[str, object]:
    data = {"offset": 100, **fields, "metadata": "", "commitTimestamp": 1_700_000_000_000}
    return {"version": version, "data": data}


@pytest.mark.parametrize(
    ("formatter", "pair", "key", "value"),
    [
        (OFFSETS_FORMATTER, commit("t", 0, 100, version=0), COMMIT_KEY, offset(0)),
        (OFFSETS_FORMATTER, commit("t", 0, 100, version=2), COMMIT_KEY, offset(2)),
        (OFFSETS_FORMATTER, commit("t", 0, 100, leaderEpoch=10), COMMIT_KEY, offset(3, leaderEpoch=10)),
        (OFFSETS_FORMATTER, commit("t", 0, 100, version=4), COMMIT_KEY, offset(4, leaderEpoch=-1)),
        (OFFSETS_FORMATTER, forget("t", 0), COMMIT_KEY, None),
        (GROUP_METADATA_FORMATTER, classic(), GROUP_KEY, {"version": 3, "data": EMPTY_GROUP}),
        (GROUP_METADATA_FORMATTER, classic_tombstone(), GROUP_KEY, None),
        (SHARE_GROUP_FORMATTER, share_member(), SHARE_KEY, {"version": 0, "data": SHARE}),
    ],
)
def test_message_formatter(formatter: frozenset[int], pair: Pair, key: object, value: object) -> None:
    text = kafka_json(*pair, formatter)
    assert text == json.dumps({"key": key, "value": value}, separators=(",", ":"))
    others = {OFFSETS_FORMATTER, GROUP_METADATA_FORMATTER, SHARE_GROUP_FORMATTER} - {formatter}
    assert {kafka_json(*pair, other) for other in others} == {None}
