"""Expiry and removal by the classic coordinator (reference 4.11, 9.1)."""

from __future__ import annotations

from typing import Any

import pytest

from offsetstream.codec.records import decode_key, encode_key
from offsetstream.coordinator.cache import GroupMetadataCache
from offsetstream.coordinator.replay.offsets import OffsetAndMetadata
from tests.conformance.builder import GROUP, TIMESTAMP, classic, classic_member, commit, subscription
from tests.unit.conformance.support import (
    BAR_0,
    FOO_0,
    FOO_1,
    RETENTION,
    cache_of,
    committed,
    group_of,
    member,
    rebalance,
)

KAFKA_CLASS = "GroupMetadataManagerTest.scala"


def types(cache: GroupMetadataCache, now: int) -> tuple[int, int, list[int]]:
    """Offsets and groups that a cleanup removes, and the key types of its tombstones."""
    removal = cache.cleanup_group_metadata(now)
    return removal.offsets, removal.groups, [decode_key(key)[0] for key in removal.tombstones.get(0, [])]


def store(cache: GroupMetadataCache, **offsets: OffsetAndMetadata) -> None:
    places = {"foo_0": FOO_0, "foo_1": FOO_1, "bar_0": BAR_0}
    named = {places[name]: commit for name, commit in offsets.items()}
    cache.store_offsets(group_of(cache), named).complete(base_offset=0)


def test_expire_offset() -> None:
    cache = cache_of()
    start = TIMESTAMP
    store(
        cache,
        foo_0=OffsetAndMetadata(37, "", start, expire_timestamp_ms=start + 1),
        foo_1=OffsetAndMetadata(57, "", start, expire_timestamp_ms=start + 3),
    )
    removal = cache.cleanup_group_metadata(start + 2)
    assert (removal.offsets, removal.groups) == (1, 0)
    key = {"type": 1, "data": {"group": GROUP, "topic": "foo", "partition": 0}}
    assert removal.tombstones == {0: [encode_key(key)]}
    assert committed(cache) == {FOO_1: 57}


def test_group_metadata_removal() -> None:
    cache = cache_of()
    group_of(cache).generation = 5
    removal = cache.cleanup_group_metadata(TIMESTAMP)
    assert (removal.offsets, removal.groups) == (0, 1)
    assert removal.tombstones == {0: [encode_key({"type": 2, "data": {"group": GROUP}})]}
    assert cache.get_group(GROUP) is None


def test_group_metadata_removal_with_log_append_time() -> None:
    # Whatever the timestamps in the log: they play no part.
    cache = cache_of(classic(generation=5, currentStateTimestamp=2**62))
    assert types(cache, TIMESTAMP) == (0, 1, [2])


def test_expire_group_with_offsets_only() -> None:
    cache = cache_of()
    old = OffsetAndMetadata(37, "", TIMESTAMP, expire_timestamp_ms=TIMESTAMP + 1)
    store(cache, foo_0=old, foo_1=old)
    assert types(cache, TIMESTAMP + 2) == (2, 1, [1, 1])
    assert cache.get_group(GROUP) is None


def test_offset_expiration_semantics() -> None:
    cache = cache_of()
    group = group_of(cache)
    group.add(member(subscription=subscription("foo")))
    rebalance(group)
    store(
        cache,
        foo_0=OffsetAndMetadata(1, "", TIMESTAMP, expire_timestamp_ms=TIMESTAMP - 1),
        foo_1=OffsetAndMetadata(2, "", TIMESTAMP),
        bar_0=OffsetAndMetadata(3, "", TIMESTAMP + 500),
    )
    assert types(cache, TIMESTAMP + 500) == (0, 0, [])
    group.members.clear()
    rebalance(group)  # Empty, since TIMESTAMP
    assert types(cache, TIMESTAMP + 500) == (1, 0, [1])
    assert types(cache, TIMESTAMP + RETENTION - 1) == (0, 0, [])
    assert types(cache, TIMESTAMP + RETENTION) == (2, 1, [1, 1, 2])
    assert cache.get_group(GROUP) is None


def test_offset_expiration_of_simple_consumer() -> None:
    cache = cache_of(commit("foo", 0, 1), commit("foo", 1, 2, commitTimestamp=TIMESTAMP + 500))
    assert types(cache, TIMESTAMP + RETENTION - 1) == (0, 0, [])
    assert types(cache, TIMESTAMP + RETENTION) == (1, 0, [1])
    assert types(cache, TIMESTAMP + RETENTION + 500) == (1, 1, [1])


def test_offset_expiration_of_active_group_semantics() -> None:
    cache = cache_of(
        classic(
            classic_member("a", subscription=subscription("foo")), classic_member("b", subscription=subscription("baz"))
        ),
        commit("foo", 0, 1),
        commit("bar", 0, 2),
        commit("bar", 1, 3, commitTimestamp=TIMESTAMP + 500),
    )
    assert types(cache, TIMESTAMP + RETENTION - 1) == (0, 0, [])
    assert types(cache, TIMESTAMP + RETENTION) == (1, 0, [1])
    assert types(cache, TIMESTAMP + RETENTION + 500) == (1, 0, [1])
    assert committed(cache) == {FOO_0: 1}


@pytest.mark.parametrize(
    "members",
    [
        [classic_member()],  # of unknown subscription
        [classic_member(subscription=subscription("foo")), classic_member("b")],
    ],
)
def test_nothing_of_an_active_group_expires_if_its_topics_are_unknown(members: list[dict[str, Any]]) -> None:
    cache = cache_of(classic(*members), commit("bar", 0, 2, version=1, expireTimestamp=1))
    assert types(cache, TIMESTAMP * 2) == (0, 0, [])


def test_an_empty_group_of_an_old_record_ages_by_its_commits() -> None:
    cache = cache_of(classic(version=1), commit("foo", 0, 2, commitTimestamp=TIMESTAMP + 500))
    assert types(cache, TIMESTAMP + RETENTION + 499) == (0, 0, [])
    assert types(cache, TIMESTAMP + RETENTION + 500) == (1, 1, [1, 2])


def test_a_commit_in_flight_protects_its_partition() -> None:
    cache = cache_of(commit("foo", 0, 1), commit("foo", 1, 1))
    pending = cache.store_offsets(group_of(cache), {FOO_0: OffsetAndMetadata(2, "", TIMESTAMP * 2)})
    assert types(cache, TIMESTAMP + RETENTION) == (1, 0, [1])
    pending.complete(base_offset=9)
    assert committed(cache) == {FOO_0: 2}


def test_log_info_from_cleanup_group_metadata() -> None:
    cache = cache_of(commit("foo", 0, 1), commit("foo", 0, 1, group="other"))
    assert cache.cleanup_group_metadata(TIMESTAMP).offsets == 0
    assert cache.cleanup_group_metadata(TIMESTAMP + RETENTION).offsets == 2
