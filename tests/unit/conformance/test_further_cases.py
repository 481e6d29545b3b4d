"""Cases that Kafka does not test (reference 9.6) and that no log shows; the others are in tests/conformance."""

from __future__ import annotations

import pytest

from offsetstream.codec.records import decode_value
from offsetstream.codec.wire import DecodeError
from offsetstream.coordinator.cache import GroupMetadataCache
from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.coordinator.replay.classic_group import ClassicGroup
from offsetstream.coordinator.replay.modern_groups import ConsumerGroup
from tests.conformance.builder import GROUP, T1, Log, classic, classic_member, commit, commits, subscription
from tests.conformance.case import BOTH
from tests.unit.conformance.support import cache_of, group_of

KAFKA_CLASS = "9.6"


@pytest.mark.parametrize("version", range(5))
def test_case_5(version: int) -> None:
    """Every version of both values, with bytes after it, and cut at every byte."""
    group = classic(classic_member("m", subscription=b"\1\2"), version=version)
    for key_type, (_, value) in ((1, commit("t", 0, 5, version=version, metadata="meta")), (2, group)):
        assert value is not None
        whole = decode_value(key_type, value)
        assert decode_value(key_type, value + b"\0garbage") == whole
        for end in range(len(value)):
            with pytest.raises(DecodeError):
                decode_value(key_type, value[:end])


UUID = "00000000000000000000000000000001"
SHAPES_OF_3_7 = {
    4: "0000 00000005 02" + UUID + "0274 00000001 02 00000000 01 00 00 00",
    5: "0000 00 00 0263 032f68 020474 6f70 01 ffffffff 00 01 00",
    7: "0000 00 02" + UUID + "02 00000000 00 0000 01 00",
    8: "0000 00000005 00000004 00000006 02" + UUID + "02 00000000 00 01 01 00 0000 01 00",
}


@pytest.mark.parametrize("key_type", SHAPES_OF_3_7)
def test_case_7(key_type: int) -> None:
    """Values as 3.7 wrote them are recognised, and make the same group as later ones."""
    value = bytes.fromhex(SHAPES_OF_3_7[key_type])
    member = b"\0\2m1" if key_type != 4 else b""
    pair = (key_type.to_bytes(2, "big") + b"\0\3foo" + member, value)
    group = cache_of(pair, coordinator="new").get_group(GROUP)
    assert isinstance(group, ConsumerGroup)
    if key_type == 4:
        assert group.has_subscription_metadata_record
    if key_type == 5:
        assert group.members["m1"].subscribed_topic_names == ["top"]
        assert not group.members["m1"].uses_classic_protocol
    if key_type == 7:
        assert group.target_assignment == {"m1": {T1: {0: None}}}
    if key_type == 8:
        assert (group.members["m1"].member_epoch, group.members["m1"].member_state) == (5, "STABLE")
        assert group.partition_epochs == {(T1, 0): 5}


@pytest.mark.parametrize("coordinator", BOTH)
def test_case_9(coordinator: Coordinator) -> None:
    """Assignments of zero bytes, subscriptions of versions that are yet to come, or negative."""
    known = subscription("foo")
    for prefix in (b"\0\4", b"\0\x64", b"\xff\xff"):
        cache = cache_of(classic(classic_member(subscription=prefix + known[2:])), coordinator=coordinator)
        assert group_of(cache).subscribed_topics() == frozenset({"foo"})
        assert cache.snapshot()["groups"][0]["members"][0]["assignment"] == []


@pytest.mark.parametrize("coordinator", BOTH)
def test_case_12(coordinator: Coordinator) -> None:
    """Records in a partition that the hash does not give are loaded all the same."""
    cache = GroupMetadataCache(coordinator)
    wrong = (cache.partition_for(GROUP) + 1) % 50
    cache.load_partition(wrong, Log().write(classic(), *commits(foo_0=1)).batches)
    assert [group["group_id"] for group in cache.snapshot()["groups"]] == [GROUP]
    assert cache.snapshot()["offsets"][0]["offset"] == 1
    reachable = isinstance(cache.get_group(GROUP), ClassicGroup)
    assert reachable == (coordinator == "classic")  # one cache for all partitions, or a shard for each
