"""A consumer group by itself (reference 9.5)."""

from __future__ import annotations

from typing import Any

import pytest

from offsetstream.codec.records import decode_key
from offsetstream.coordinator.appends import group_tombstones
from offsetstream.coordinator.cache import GroupMetadataCache
from offsetstream.coordinator.replay.classic_group import GroupState
from offsetstream.coordinator.replay.modern_groups import ConsumerGroup
from offsetstream.coordinator.replay.offsets import OffsetAndMetadata
from tests.conformance.builder import (
    GROUP,
    T1,
    Log,
    Pair,
    classic,
    classic_member,
    classic_tombstone,
    consumer_member,
    current,
    new,
    topics,
)
from tests.unit.conformance.support import cache_of

KAFKA_CLASS = "ConsumerGroupTest"
EPOCHS = (new(3, {"epoch": 2}), new(6, {"assignmentEpoch": 2}))


def replayed(*pairs: Pair) -> ConsumerGroup:
    group = cache_of(*pairs, coordinator="new").get_group(GROUP)
    assert isinstance(group, ConsumerGroup)
    return group


@pytest.mark.parametrize(
    ("pairs", "state"),
    [
        ((new(3, {"epoch": 1}),), GroupState.EMPTY),
        ((consumer_member(), new(3, {"epoch": 2})), GroupState.ASSIGNING),
        ((consumer_member(), *EPOCHS), GroupState.RECONCILING),
        ((consumer_member(), *EPOCHS, current(1)), GroupState.RECONCILING),
        ((consumer_member(), *EPOCHS, current(2, state=1)), GroupState.RECONCILING),
        ((consumer_member(), *EPOCHS, current(2)), GroupState.STABLE),
        ((consumer_member(), *EPOCHS, current(2), current(2, "m2", state=2)), GroupState.RECONCILING),
    ],
)
def test_group_state(pairs: tuple[Pair, ...], state: GroupState) -> None:
    assert replayed(*pairs).state is state


def test_offset_expiration_condition() -> None:
    for group in (replayed(consumer_member()), replayed(new(3, {"epoch": 1}))):
        base = group.expiration_base()
        assert base is not None
        assert base(OffsetAndMetadata(1, "", 30_000)) == 30_000


def test_is_subscribed_to_topic() -> None:
    group = replayed(
        consumer_member("a"),
        consumer_member("b", subscribedTopicNames=[], subscribedTopicRegex="b.*"),
        new(16, {"topics": ["bar"], "version": 1, "timestamp": 1}, regularExpression="b.*"),
        new(16, {"topics": ["zar"], "version": 1, "timestamp": 1}, regularExpression="nobody's"),
    )
    assert [group.is_subscribed_to_topic(topic) for topic in ("foo", "bar", "zar")] == [True, True, False]


def test_from_classic_group() -> None:
    """The records of an online upgrade: the member still speaks the classic protocol (reference 5.8)."""
    protocols = [{"name": "range", "metadata": b"\0"}]
    upgraded: dict[str, Any] = {"classicMemberMetadata": {"sessionTimeoutMs": 5000, "supportedProtocols": protocols}}
    group = replayed(
        classic(classic_member("m1"), generation=10),
        classic_tombstone(),
        consumer_member(**upgraded),
        new(3, {"epoch": 10}),
        new(7, {"topicPartitions": topics(T1=[0])}, memberId="m1"),
        new(6, {"assignmentEpoch": 10}),
        current(10, T1=[0]),
    )
    assert (group.group_epoch, group.state) == (10, GroupState.STABLE)
    assert group.members["m1"].uses_classic_protocol
    assert not replayed(consumer_member()).members["m1"].uses_classic_protocol


def test_create_group_tombstone_records() -> None:
    group = replayed(
        consumer_member("a"),
        consumer_member("b"),
        *EPOCHS,
        new(7, {"topicPartitions": []}, memberId="a"),
        new(16, {"topics": ["bar"], "version": 1, "timestamp": 1}, regularExpression="b.*"),
    )
    keys = [decode_key(key) for key in group_tombstones(group)]
    assert [(kind, data.get("memberId", data.get("regularExpression"))) for kind, data in keys] == [
        (8, "a"),
        (8, "b"),
        (7, "a"),
        (6, None),
        (5, "a"),
        (5, "b"),
        (16, "b.*"),
        (4, None),
        (3, None),
    ]


def test_partition_epochs() -> None:
    owned = {(T1, 0): 3, (T1, 1): 3}
    assert replayed(current(3, T1=[0, 1])).partition_epochs == owned
    assert replayed(current(3, T1=[0, 1]), current(4, T1=[1])).partition_epochs == {(T1, 1): 4}
    assert replayed(current(3, T1=[0, 1]), current(4, "m2", T1=[1])).partition_epochs == {(T1, 0): 3, (T1, 1): 4}
    late_release = (current(3, T1=[0, 1]), current(4, "m2", T1=[1]), current(5))
    assert replayed(*late_release).partition_epochs == {(T1, 1): 4}


@pytest.mark.parametrize("epoch", [3, 2])
def test_a_partition_is_taken_over_at_a_higher_epoch_only(epoch: int) -> None:
    cache = GroupMetadataCache("new")
    result = cache.load_partition(0, Log().write(current(3, T1=[0]), current(epoch, "m2", T1=[0])).batches)
    assert result.status == "failed"
    assert f"takes partition 0 of topic {T1} at epoch {epoch}, but it is owned at epoch 3" in str(result.error)


def test_a_partition_both_assigned_and_pending_revocation() -> None:
    value = {"memberEpoch": 9, "previousMemberEpoch": 8, "state": 1}
    both = {"assignedPartitions": topics(T1=[0]), "partitionsPendingRevocation": topics(T1=[0])}
    pair = new(8, value | both, memberId="m1")
    assert GroupMetadataCache("new").load_partition(0, Log().write(pair).batches).status == "failed"


def test_a_static_member_that_is_away_keeps_its_partitions() -> None:
    group = replayed(consumer_member(instanceId="i"), *EPOCHS, current(2, T1=[0]), current(-2, T1=[0]))
    assert group.state is GroupState.RECONCILING
    assert group.members["m1"].assigned == {"": {T1: {0: 0}}}
    assert group.partition_epochs == {(T1, 0): -2}
