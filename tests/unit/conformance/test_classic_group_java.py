"""The Java coordinator's classic group (reference 9.5)."""

from __future__ import annotations

import pytest

from offsetstream.coordinator.replay.classic_group import ClassicGroup, GroupState
from offsetstream.coordinator.replay.offsets import OffsetAndMetadata
from offsetstream.errors import IllegalStateError
from tests.conformance.builder import (
    GROUP,
    assignment,
    classic,
    classic_member,
    commits,
    consumer_member,
    new,
    subscription,
)
from tests.unit.conformance.support import cache_of, group_of, member, rebalance

KAFKA_CLASS = "ClassicGroupTest"
COMMIT = OffsetAndMetadata(1, "", 7)


def test_offset_expiration_condition() -> None:
    group = ClassicGroup(GROUP, now_ms=3)
    base = group.expiration_base()
    assert base is not None
    assert base(COMMIT) == 7  # simple
    group.protocol_type = "consumer"
    base = group.expiration_base()
    assert base is not None
    assert base(COMMIT) == 3  # since it is Empty
    group.add(member(subscription=subscription("foo")))
    group.transition_to(GroupState.PREPARING_REBALANCE)
    assert group.expiration_base() is None
    group.init_next_generation("range")
    group.transition_to(GroupState.STABLE, 9)
    base = group.expiration_base()
    assert base is not None
    assert base(COMMIT) == 7
    connect = ClassicGroup(GROUP)
    connect.add(member(protocol_type="connect"))
    rebalance(connect)
    assert connect.expiration_base() is None


def test_is_subscribed_to_topic() -> None:
    group = ClassicGroup(GROUP)
    assert not group.is_subscribed_to_topic("foo")
    group.add(member(subscription=subscription("foo")))
    assert group.is_subscribed_to_topic("foo")  # its protocol is not chosen yet: any topic counts
    assert group.is_subscribed_to_topic("bar")
    rebalance(group)
    assert group.is_subscribed_to_topic("foo")
    assert not group.is_subscribed_to_topic("bar")


def test_compute_subscribed_topics_handles_malformed_member_metadata() -> None:
    group = group_of(cache_of(classic(classic_member("a", subscription=b"\0\0\0\0")), coordinator="new"))
    assert group.state is GroupState.STABLE
    assert group.subscribed_topics() is None


def test_subscribed_topics() -> None:
    members = (
        classic_member("a", subscription=subscription("foo")),
        classic_member("b", subscription=subscription("bar")),
    )
    assert group_of(cache_of(classic(*members), coordinator="new")).subscribed_topics() == frozenset({"foo", "bar"})


def test_subscribed_topics_non_consumer_group() -> None:
    pair = classic(classic_member("a", subscription=subscription("foo")), protocolType="connect")
    assert group_of(cache_of(pair, coordinator="new")).subscribed_topics() is None


def test_cannot_add_static_member_if_already_present() -> None:
    group = ClassicGroup(GROUP)
    group.add(member("a", instance="i"))
    for again in ("a", "b"):
        with pytest.raises(IllegalStateError):
            group.add(member(again, instance="i"))


DOWNGRADE = (
    consumer_member("m1"),
    consumer_member("m2"),
    new(3, {"epoch": 7}),
    *(new(8, None, memberId=name) for name in ("m1", "m2")),
    new(6, None),
    *(new(5, None, memberId=name) for name in ("m1", "m2")),
    new(4, None),
    new(3, None),
)


def _downgraded(*members: str) -> ClassicGroup:
    """The log of a consumer group whose last consumer left (reference 5.8)."""
    stayed = (
        classic_member(name, subscription=subscription("foo"), assignment=assignment(foo=[0])) for name in members
    )
    return group_of(cache_of(*commits(foo_0=5), *DOWNGRADE, classic(*stayed, generation=7), coordinator="new"))


def test_from_consumer_group_with_joining_member() -> None:
    group = _downgraded("m1", "joining")
    assert (group.state, group.generation, group.leader_id) == (GroupState.STABLE, 7, "m1")
    assert sorted(group.members) == ["joining", "m1"]


def test_from_consumer_group_without_joining_member() -> None:
    group = _downgraded("m1")
    assert (group.type_name, group.protocol_type, group.protocol_name) == ("Classic", "consumer", "range")
    assert group.members["m1"].assigned() == [{"topic": "foo", "partitions": [0]}]
    assert group.subscribed_topics() == frozenset({"foo"})
