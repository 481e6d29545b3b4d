"""Offsets that the new coordinator removes: deleted, expired, of deleted groups and topics (reference 9.3)."""

from __future__ import annotations

import pytest

from offsetstream.coordinator.appends import Errors
from offsetstream.coordinator.cache import GroupMetadataCache, Removal
from tests.conformance.builder import (
    GROUP,
    T1,
    T2,
    TIMESTAMP,
    Log,
    classic,
    classic_member,
    commit,
    commits,
    consumer_member,
    current,
    new,
    streams_member,
    subscription,
    topology,
)
from tests.unit.conformance.support import (
    BAR_0,
    FOO_0,
    FOO_1,
    RETENTION,
    committed,
    new_cache,
    with_pending,
    written,
)

KAFKA_CLASS = "OffsetMetadataManagerTest"


def test_generic_group_offset_delete() -> None:
    cache = new_cache(classic(classic_member(subscription=subscription("bar"))), *commits(foo_0=1))
    errors, removal = cache.delete_offsets(GROUP, [FOO_0, FOO_1])
    assert errors == {FOO_0: Errors.NONE, FOO_1: Errors.NONE}
    assert written(removal) == [(1, "foo", 0)]
    assert committed(cache) == {}
    assert cache.get_group(GROUP) is not None


def test_generic_group_offset_delete_with_errors() -> None:
    cache = new_cache(classic(classic_member(subscription=subscription("foo"))), *commits(foo_0=1))
    assert cache.delete_offsets(GROUP, [FOO_0])[0] == {FOO_0: Errors.GROUP_SUBSCRIBED_TO_TOPIC}
    assert cache.delete_offsets("unknown", [FOO_0])[0] == {FOO_0: Errors.GROUP_ID_NOT_FOUND}
    other = new_cache(classic(classic_member(), protocolType="connect"), *commits(foo_0=1))
    assert other.delete_offsets(GROUP, [FOO_0])[0] == {FOO_0: Errors.NON_EMPTY_GROUP}
    assert committed(other) == {FOO_0: 1}


def test_generic_group_offset_delete_with_pending_transactional_offsets() -> None:
    cache = with_pending(classic())
    assert written(cache.delete_offsets(GROUP, [FOO_1])[1]) == [(1, "foo", 1)]
    cache.apply(0, Log(9).end(7).batches)
    assert committed(cache) == {}


def test_consumer_group_offset_delete() -> None:
    cache = new_cache(consumer_member(subscribedTopicNames=["bar"]), *commits(foo_0=1))
    assert written(cache.delete_offsets(GROUP, [FOO_0])[1]) == [(1, "foo", 0)]


def test_consumer_group_offset_delete_with_errors() -> None:
    cache = new_cache(consumer_member(), *commits(foo_0=1))
    errors, removal = cache.delete_offsets(GROUP, [FOO_0, BAR_0])
    assert errors == {FOO_0: Errors.GROUP_SUBSCRIBED_TO_TOPIC, BAR_0: Errors.NONE}
    assert written(removal) == []


def test_consumer_group_offset_delete_with_pending_transactional_offsets() -> None:
    cache = with_pending(consumer_member(subscribedTopicNames=["bar"]))
    assert written(cache.delete_offsets(GROUP, [FOO_1])[1]) == [(1, "foo", 1)]


def test_streams_group_offset_delete() -> None:
    cache = new_cache(streams_member(), topology(source="bar"), *commits(foo_0=1))
    assert written(cache.delete_offsets(GROUP, [FOO_0])[1]) == [(1, "foo", 0)]


def test_streams_group_offset_delete_with_errors() -> None:
    cache = new_cache(streams_member(), topology(), *commits(foo_0=1))
    assert cache.delete_offsets(GROUP, [FOO_0])[0] == {FOO_0: Errors.GROUP_SUBSCRIBED_TO_TOPIC}


def test_streams_group_offset_delete_with_pending_transactional_offsets() -> None:
    cache = with_pending(streams_member(), topology(source="bar"))
    assert written(cache.delete_offsets(GROUP, [FOO_1])[1]) == [(1, "foo", 1)]


def test_delete_group_all_offsets() -> None:
    cache = new_cache(*commits(foo_0=1, foo_1=2, bar_0=3))
    errors, removal = cache.delete_groups([GROUP])
    assert errors == {GROUP: Errors.NONE}
    assert written(removal) == [(1, "bar", 0), (1, "foo", 0), (1, "foo", 1), (2, "", -1)]
    assert (removal.offsets, removal.groups) == (3, 1)
    assert cache.snapshot() == {"groups": [], "offsets": []}


def test_delete_group_all_offsets_with_pending_transactional_offsets() -> None:
    log = Log().write(*commits(foo_0=1, foo_1=2, bar_0=3)).write(*commits(foo_1=4, bar_1=5), producer=7)
    removal = new_cache(log=log).delete_groups([GROUP])[1]
    assert removal.offsets == 3  # bar-1 was only pending: it has a tombstone, and was never an offset
    assert written(removal) == [(1, "bar", 0), (1, "bar", 1), (1, "foo", 0), (1, "foo", 1), (2, "", -1)]


def expire(cache: GroupMetadataCache, after: int = RETENTION) -> list[tuple[int, str, int]]:
    return written(cache.cleanup_group_metadata(TIMESTAMP + after))


def test_cleanup_expired_offsets() -> None:
    cache = new_cache(
        consumer_member(subscribedTopicNames=["bar"]),
        *commits(foo_0=1, bar_0=2),
        commit("foo", 1, 3, commitTimestamp=TIMESTAMP + 1),
    )
    assert expire(cache, RETENTION - 1) == []
    assert expire(cache) == [(1, "foo", 0)]
    assert expire(cache, RETENTION + 1) == [(1, "foo", 1)]
    assert committed(cache) == {BAR_0: 2}


def test_cleanup_expired_offsets_with_pending_transactional_offsets() -> None:
    cache = with_pending(*commits(foo_0=1, foo_1=2))
    assert expire(cache) == [(1, "foo", 0)]
    assert committed(cache) == {FOO_1: 2}
    assert cache.get_group(GROUP) is not None


def test_cleanup_expired_offsets_with_pending_transactional_offsets_only() -> None:
    cache = with_pending(*commits(foo_0=1))
    assert expire(cache) == [(1, "foo", 0)]
    assert cache.get_group(GROUP) is not None
    cache.apply(0, Log(9).abort(7).batches)
    assert expire(cache) == [(2, "", -1)]
    assert cache.get_group(GROUP) is None


def test_cleanup_expired_offsets_group_has_no_offsets() -> None:
    assert expire(new_cache(classic(generation=0))) == [(2, "", -1)]


def test_cleanup_expired_offsets_group_does_not_exist() -> None:
    assert new_cache().cleanup_group_metadata(TIMESTAMP) == Removal()


def test_cleanup_expired_offsets_empty_offset_expiration_condition() -> None:
    cache = new_cache(
        classic(classic_member(), protocolType="connect"), commit("foo", 0, 1, version=1, expireTimestamp=1)
    )
    assert expire(cache) == []


def test_group_has_no_offsets_returns_true_when_group_absent_and_no_open_txn() -> None:
    assert new_cache().offsets_of(GROUP).is_empty


def test_group_has_no_offsets_returns_false_when_open_txn_pending() -> None:
    assert not new_cache(log=Log().write(*commits(foo_0=1), producer=7)).offsets_of(GROUP).is_empty


def test_group_has_no_offsets_returns_false_when_committed_offset_exists() -> None:
    assert not new_cache(*commits(foo_0=1)).offsets_of(GROUP).is_empty


@pytest.mark.parametrize(("committed_id", "deleted_id", "goes"), [(None, T1, True), (T1, None, True)])
def test_on_topics_deleted_with_zero_topic_id(committed_id: str | None, deleted_id: str | None, goes: bool) -> None:
    fields = {"version": 4, "topicId": committed_id} if committed_id else {}
    cache = new_cache(commit("foo", 0, 1, **fields), *commits(bar_0=2))  # type: ignore[arg-type] # either is right
    assert (written(cache.on_topics_deleted({"foo": deleted_id})) == [(1, "foo", 0)]) == goes


def test_on_topics_deleted_matching_topic_id() -> None:
    cache = new_cache(commit("foo", 0, 1, version=4, topicId=T1))
    assert written(cache.on_topics_deleted({"foo": T1})) == [(1, "foo", 0)]
    assert cache.get_group(GROUP) is not None  # until the next cleanup
    assert expire(cache, 0) == [(2, "", -1)]


def test_on_topics_deleted_mismatched_topic_id() -> None:
    cache = new_cache(commit("foo", 0, 1, version=4, topicId=T1))
    assert written(cache.on_topics_deleted({"foo": T2})) == []
    assert committed(cache) == {FOO_0: 1}


def test_on_topics_deleted_mixed_topic_ids() -> None:
    log = Log().write(
        commit("foo", 0, 1, version=4, topicId=T1), commit("foo", 1, 2, version=4, topicId=T2), commit("foo", 2, 3)
    )
    cache = new_cache(log=log.write(commit("foo", 3, 4), producer=7))
    assert written(cache.on_topics_deleted({"foo": T1})) == [(1, "foo", 0), (1, "foo", 2), (1, "foo", 3)]
    assert committed(cache) == {FOO_1: 2}


def test_an_open_commit_is_forgotten_with_the_group() -> None:
    cache = with_pending(classic())
    cache.delete_groups([GROUP])
    cache.apply(0, Log(9).end(7).batches)
    assert cache.snapshot() == {"groups": [], "offsets": []}


def test_offsets_of_an_empty_consumer_group_age_by_their_commit() -> None:
    cache = new_cache(new(3, {"epoch": 4}), *commits(foo_0=1))
    assert expire(cache) == [(1, "foo", 0), (6, "", -1), (4, "", -1), (3, "", -1)]


def test_a_resolved_pattern_keeps_its_topics() -> None:
    pattern = new(16, {"topics": ["foo"], "version": 1, "timestamp": 1}, regularExpression="f.*")
    cache = new_cache(
        consumer_member(subscribedTopicNames=[], subscribedTopicRegex="f.*"), pattern, current(1), *commits(foo_0=1)
    )
    assert expire(cache) == []
    cache.apply(0, Log(9).write(new(16, None, regularExpression="f.*")).batches)
    assert expire(cache) == [(1, "foo", 0)]
