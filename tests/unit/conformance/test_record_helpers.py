"""The records that a coordinator makes (reference 9.5)."""

from __future__ import annotations

import pytest

from offsetstream.codec.records import decode_key, decode_value, encode_key
from offsetstream.coordinator.appends import offset_tombstone
from offsetstream.coordinator.replay.offsets import OffsetAndMetadata
from tests.conformance.builder import GROUP, T1, TIMESTAMP, Pair, classic, consumer_member, current, new
from tests.conformance.case import BOTH
from tests.unit.conformance.support import FOO_0, cache_of, group_of, member, rebalance

KAFKA_CLASS = "GroupCoordinatorRecordHelpersTest"


def test_new_group_metadata_record() -> None:
    cache = cache_of(coordinator="new")
    group = group_of(cache)
    group.add(member("a", subscription=b"\1\2", instance="i"))
    rebalance(group)
    ((key, value),) = cache.store_group(group, {"a": b"\3"}).records
    assert value is not None
    assert decode_key(key) == (2, {"group": GROUP})
    assert decode_value(2, value) == (
        3,
        {
            "protocolType": "consumer",
            "generation": 1,
            "protocol": "range",
            "leader": "a",
            "currentStateTimestamp": TIMESTAMP,
            "members": [
                {
                    "memberId": "a",
                    "groupInstanceId": "i",
                    "clientId": "client",
                    "clientHost": "/host",
                    "rebalanceTimeout": 30_000,
                    "sessionTimeout": 10_000,
                    "subscription": b"\1\2",
                    "assignment": b"\3",
                }
            ],
        },
    )


def test_new_group_metadata_tombstone_record() -> None:
    cache = cache_of(classic(), coordinator="new")
    assert cache.delete_groups([GROUP])[1].tombstones == {0: [encode_key({"type": 2, "data": {"group": GROUP}})]}


def test_empty_group_metadata_record() -> None:
    cache = cache_of(coordinator="new")
    ((_, value),) = cache.store_group(group_of(cache), {}).records
    assert value is not None
    version, data = decode_value(2, value)
    assert (version, data["generation"], data["protocolType"]) == (3, 0, "")
    assert (data["protocol"], data["leader"], data["members"]) == (None, None, [])


def _value(commit: OffsetAndMetadata, coordinator: str = "new") -> tuple[int, dict[str, object]]:
    cache = cache_of(coordinator="new" if coordinator == "new" else "classic")
    value = cache.store_offsets(group_of(cache), {FOO_0: commit}).records[0][1]
    assert value is not None
    return decode_value(1, value)


def test_offset_commit_value_version() -> None:
    assert [_value(OffsetAndMetadata(1), coordinator)[0] for coordinator in BOTH] == [3, 4]
    assert [_value(OffsetAndMetadata(1, expire_timestamp_ms=5), coordinator)[0] for coordinator in BOTH] == [1, 1]


def test_new_offset_commit_record() -> None:
    _, value = _value(OffsetAndMetadata(10, "m", TIMESTAMP, leader_epoch=5, topic_id=T1))
    assert value == {"offset": 10, "leaderEpoch": 5, "metadata": "m", "commitTimestamp": TIMESTAMP, "topicId": T1}
    assert _value(OffsetAndMetadata(10))[1]["leaderEpoch"] == -1


def test_new_offset_commit_record_with_expire_timestamp() -> None:
    _, value = _value(OffsetAndMetadata(10, "m", TIMESTAMP, leader_epoch=5, expire_timestamp_ms=TIMESTAMP + 1))
    assert value == {"offset": 10, "metadata": "m", "commitTimestamp": TIMESTAMP, "expireTimestamp": TIMESTAMP + 1}


def test_new_offset_commit_tombstone_record() -> None:
    assert decode_key(offset_tombstone(GROUP, FOO_0)) == (1, {"group": GROUP, "topic": "foo", "partition": 0})


@pytest.mark.parametrize(
    ("pair", "key", "value"),
    [  # the golden bytes of reference 2.8, by Kafka's own serialiser
        (new(3, {"epoch": 10}, group="g"), "0003 0001 67", "0000 0000000a 00"),
        (
            new(3, {"epoch": 10, "metadataHash": 1}, group="g"),
            "0003 0001 67",
            "0000 0000000a 01 00 08 0000000000000001",
        ),
        (
            consumer_member("m", group="g", rackId="r", clientId="c", clientHost="/h", rebalanceTimeoutMs=1000),
            "0005 0001 67 0001 6d",
            "0000 00 02 72 02 63 03 2f68 02 04 666f6f 01 000003e8 00 01 00 01 00",
        ),
        (
            current(11, "m", group="g", T1=[0, 1]),
            "0008 0001 67 0001 6d",
            f"0000 0000000b 0000000a 00 02 {'00' * 15}01 03 00000000 00000001 00 01 00",
        ),
    ],
)
def test_new_consumer_group_records(pair: Pair, key: str, value: str) -> None:
    assert pair == (bytes.fromhex(key), bytes.fromhex(value))
