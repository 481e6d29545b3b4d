"""A classic group by itself (reference 9.2)."""

from __future__ import annotations

from itertools import product

import pytest

from offsetstream.coordinator.appends import Errors
from offsetstream.coordinator.replay.classic_group import ClassicGroup, GroupState
from offsetstream.coordinator.replay.offsets import OffsetAndMetadata
from offsetstream.errors import IllegalStateError
from tests.conformance.builder import GROUP, TIMESTAMP, Log, commits, subscription
from tests.unit.conformance.support import FOO_0, OFFSET, RETENTION, cache_of, committed, group_of, member, rebalance

KAFKA_CLASS = "GroupMetadataTest.scala"
PRODUCER = 13232
LATER = OffsetAndMetadata(40)

STATES = GroupState
ALLOWED = {
    (STATES.EMPTY, STATES.PREPARING_REBALANCE),
    (STATES.EMPTY, STATES.DEAD),
    (STATES.STABLE, STATES.PREPARING_REBALANCE),
    (STATES.STABLE, STATES.DEAD),
    (STATES.PREPARING_REBALANCE, STATES.COMPLETING_REBALANCE),
    (STATES.PREPARING_REBALANCE, STATES.EMPTY),
    (STATES.PREPARING_REBALANCE, STATES.DEAD),
    (STATES.COMPLETING_REBALANCE, STATES.STABLE),
    (STATES.COMPLETING_REBALANCE, STATES.PREPARING_REBALANCE),
    (STATES.COMPLETING_REBALANCE, STATES.DEAD),
    (STATES.DEAD, STATES.DEAD),
}
CLASSIC_STATES = sorted({state for pair in ALLOWED for state in pair})


@pytest.mark.parametrize(("before", "after"), list(product(CLASSIC_STATES, CLASSIC_STATES)))
def test_transitions(before: GroupState, after: GroupState) -> None:
    group = ClassicGroup(GROUP, before)
    if (before, after) in ALLOWED:
        group.transition_to(after, TIMESTAMP)
        assert (group.state, group.current_state_timestamp_ms) == (after, TIMESTAMP)
    else:
        with pytest.raises(IllegalStateError, match=f"from {before} to {after}"):
            group.transition_to(after)
        assert group.state is before


def test_offset_commit() -> None:
    cache = cache_of()
    pending = cache.store_offsets(group_of(cache), {FOO_0: OFFSET})
    assert not cache.offsets_of(GROUP).is_empty
    assert committed(cache) == {}
    pending.complete(base_offset=3)
    assert committed(cache) == {FOO_0: 37}


def test_offset_commit_failure() -> None:
    cache = cache_of()
    cache.store_offsets(group_of(cache), {FOO_0: OFFSET}).complete(Errors.CORRUPT_MESSAGE)
    assert cache.offsets_of(GROUP).is_empty


def test_offset_commit_failure_with_another_pending() -> None:
    cache = cache_of()
    first = cache.store_offsets(group_of(cache), {FOO_0: OFFSET})
    second = cache.store_offsets(group_of(cache), {FOO_0: LATER})
    first.complete(Errors.CORRUPT_MESSAGE)
    assert cache.offsets_of(GROUP).has_pending(FOO_0)
    second.complete(base_offset=3)
    assert committed(cache) == {FOO_0: 40}
    assert not cache.offsets_of(GROUP).in_flight


def test_offset_commit_with_another_pending() -> None:
    cache = cache_of()
    first = cache.store_offsets(group_of(cache), {FOO_0: OFFSET})
    second = cache.store_offsets(group_of(cache), {FOO_0: LATER})
    first.complete(base_offset=4)
    assert committed(cache) == {FOO_0: 37}
    assert cache.offsets_of(GROUP).has_pending(FOO_0)
    second.complete(base_offset=5)
    assert committed(cache) == {FOO_0: 40}


def test_consumer_beats_transactional_offset_commit() -> None:
    cache = cache_of()
    transactional = cache.store_offsets(group_of(cache), {FOO_0: OFFSET}, PRODUCER)
    plain = cache.store_offsets(group_of(cache), {FOO_0: LATER})
    plain.complete(base_offset=4)
    transactional.complete(base_offset=3)
    assert committed(cache) == {FOO_0: 40}
    cache.apply(0, Log(5).end(PRODUCER).batches)
    assert committed(cache) == {FOO_0: 40}


def test_transaction_beats_consumer_offset_commit() -> None:
    cache = cache_of()
    transactional = cache.store_offsets(group_of(cache), {FOO_0: OFFSET}, PRODUCER)
    plain = cache.store_offsets(group_of(cache), {FOO_0: LATER})
    plain.complete(base_offset=2)
    transactional.complete(base_offset=3)
    assert committed(cache) == {FOO_0: 40}
    cache.apply(0, Log(5).end(PRODUCER).batches)
    assert committed(cache) == {FOO_0: 37}


def test_transactional_commit_is_aborted_and_consumer_commit_wins() -> None:
    cache = cache_of()
    transactional = cache.store_offsets(group_of(cache), {FOO_0: OFFSET}, PRODUCER)
    plain = cache.store_offsets(group_of(cache), {FOO_0: LATER})
    plain.complete(base_offset=2)
    transactional.complete(base_offset=3)
    cache.apply(0, Log(5).abort(PRODUCER).batches)
    assert committed(cache) == {FOO_0: 40}
    assert cache.offsets_of(GROUP).pending == {}


def test_failed_txn_offset_commit_leaves_no_pending_state() -> None:
    cache = cache_of()
    pending = cache.store_offsets(group_of(cache), {FOO_0: OFFSET}, PRODUCER)
    assert cache.offsets_of(GROUP).has_pending_transaction(FOO_0)
    pending.complete(Errors.CORRUPT_MESSAGE)
    assert cache.offsets_of(GROUP).is_empty


def test_a_transaction_that_ends_before_its_commit_is_appended() -> None:
    cache = cache_of()
    cache.store_offsets(group_of(cache), {FOO_0: OFFSET}, PRODUCER)
    with pytest.raises(IllegalStateError, match="before its commits are appended"):
        cache.owner(GROUP).offsets.complete_transaction(PRODUCER, is_commit=True)  # type: ignore[union-attr] # owned


def test_has_pending_non_txn_offsets() -> None:
    cache = cache_of()
    cache.store_offsets(group_of(cache), {FOO_0: OFFSET})
    assert cache.offsets_of(GROUP).has_pending(FOO_0)
    assert not cache.offsets_of(GROUP).has_pending_transaction(FOO_0)
    data = cache.get_offsets(GROUP, [FOO_0], require_stable=True).partitions[FOO_0]
    assert (data.offset, data.error) == (-1, Errors.UNSTABLE_OFFSET_COMMIT)


def test_has_pending_txn_offsets() -> None:
    cache = cache_of(log=Log().write(*commits(foo_0=1), producer=PRODUCER))
    assert cache.offsets_of(GROUP).has_pending(FOO_0)
    assert cache.get_offsets(GROUP, [FOO_0]).partitions[FOO_0].error is Errors.NONE
    data = cache.get_offsets(GROUP, [FOO_0], require_stable=True).partitions[FOO_0]
    assert data.error is Errors.UNSTABLE_OFFSET_COMMIT


def test_subscribed_topics() -> None:
    group = ClassicGroup(GROUP)
    assert group.subscribed_topics() is None
    group.add(member("a", subscription=subscription("foo")))
    rebalance(group)
    assert group.subscribed_topics() == frozenset({"foo"})
    group.add(member("b", subscription=subscription("bar", "foo")))
    assert group.subscribed_topics() == frozenset({"foo", "bar"})
    group.add(member("c", subscription=b"\0"))
    assert group.subscribed_topics() is None
    assert group.is_subscribed_to_topic("anything")
    group.members.clear()
    rebalance(group)
    assert group.subscribed_topics() == frozenset()
    assert not group.is_subscribed_to_topic("foo")


def test_subscribed_topics_non_consumer_group() -> None:
    group = ClassicGroup(GROUP)
    group.add(member(protocol_type="My Protocol", subscription=subscription("foo")))
    rebalance(group)
    assert group.subscribed_topics() is None
    assert not group.is_subscribed_to_topic("foo")


def test_init_next_generation() -> None:
    group = ClassicGroup(GROUP)
    group.add(member())
    group.transition_to(GroupState.PREPARING_REBALANCE)
    group.init_next_generation("roundrobin")
    assert (group.state, group.generation, group.protocol_name) == (GroupState.COMPLETING_REBALANCE, 1, "roundrobin")


def test_init_next_generation_empty_group() -> None:
    group = ClassicGroup(GROUP)
    group.transition_to(GroupState.PREPARING_REBALANCE)
    group.init_next_generation("roundrobin")
    assert (group.state, group.generation, group.protocol_name) == (GroupState.EMPTY, 1, None)


def test_cannot_add_static_member_if_already_present() -> None:
    group = ClassicGroup(GROUP)
    group.add(member("a", instance="i"))
    with pytest.raises(IllegalStateError, match="instance id 'i'"):
        group.add(member("b", instance="i"))
    assert list(group.members) == ["a"]


def test_a_member_of_another_protocol_type() -> None:
    group = ClassicGroup(GROUP)
    group.add(member("a"))
    with pytest.raises(IllegalStateError, match="another protocol type"):
        group.add(member("b", protocol_type="connect"))


def test_offset_removal_during_transition_from_empty_to_non_empty() -> None:
    cache = cache_of(*commits(foo_0=1))
    group = group_of(cache)
    group.protocol_type = "consumer"
    group.transition_to(GroupState.PREPARING_REBALANCE)
    group.add(member(subscription=subscription("bar")))
    assert cache.cleanup_group_metadata(TIMESTAMP + RETENTION).offsets == 0
    group.init_next_generation("range")
    assert cache.cleanup_group_metadata(TIMESTAMP + RETENTION).offsets == 0
    group.transition_to(GroupState.STABLE)
    assert cache.cleanup_group_metadata(TIMESTAMP + RETENTION).offsets == 1
