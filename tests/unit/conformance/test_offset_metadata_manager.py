"""The new coordinator's offsets (reference 9.3)."""

from __future__ import annotations

import pytest

from offsetstream.codec.records import decode_value
from offsetstream.coordinator.appends import Errors
from offsetstream.coordinator.cache import PartitionData
from offsetstream.coordinator.replay.offsets import OffsetAndMetadata
from tests.conformance.builder import (
    GROUP,
    T1,
    T2,
    TIMESTAMP,
    Log,
    classic_tombstone,
    commit,
    commits,
    forget,
)
from tests.unit.conformance.support import (
    BAR_0,
    FOO_0,
    FOO_1,
    committed,
    group_of,
    new_cache,
    with_pending,
)

KAFKA_CLASS = "OffsetMetadataManagerTest"


def test_fetch_offsets_with_topic_ids() -> None:
    cache = new_cache(commit("foo", 0, 1, version=4, topicId=T1), commit("bar", 0, 2))
    found = cache.get_offsets(GROUP, [FOO_0, BAR_0], topic_ids={"foo": T1, "bar": T2}).partitions
    assert (found[FOO_0].offset, found[BAR_0].offset) == (1, 2)


def test_fetch_offsets_with_recreated_topic() -> None:
    cache = new_cache(commit("foo", 0, 1, version=4, topicId=T1))
    assert cache.get_offsets(GROUP, [FOO_0], topic_ids={"foo": T2}).partitions == {FOO_0: PartitionData()}
    assert cache.offsets_of(GROUP).committed[FOO_0].offset == 1


STEPS = (
    (commits(foo_0=100), {FOO_0: 100}),
    (commits(foo_0=110, foo_1=200), {FOO_0: 110, FOO_1: 200}),
    ((forget("foo", 0),), {FOO_1: 200}),
    (commits(bar_0=300), {FOO_1: 200, BAR_0: 300}),
)


def test_fetch_offsets_at_different_committed_offset() -> None:
    cache, log = new_cache(), Log()
    for pairs, expected in STEPS:
        before = len(log.batches)
        cache.apply(0, log.write(*pairs).batches[before:])
        found = cache.get_offsets(GROUP, [FOO_0, FOO_1, BAR_0]).partitions
        assert {place: data.offset for place, data in found.items()} == dict.fromkeys(found, -1) | expected


def test_fetch_all_offsets_at_different_committed_offset() -> None:
    log = Log()
    for pairs, expected in STEPS:
        assert committed(new_cache(log=log.write(*pairs))) == expected


def test_fetch_offsets_with_pending_transactional_offsets() -> None:
    cache = with_pending(*commits(foo_0=1, foo_1=2))
    stable = cache.get_offsets(GROUP, [FOO_0, FOO_1], require_stable=True).partitions
    assert stable[FOO_0] == PartitionData(1)
    assert stable[FOO_1] == PartitionData(error=Errors.UNSTABLE_OFFSET_COMMIT)
    assert cache.get_offsets(GROUP, [FOO_1]).partitions == {FOO_1: PartitionData(2)}
    cache.apply(0, Log(9).end(7).batches)
    assert cache.get_offsets(GROUP, [FOO_1], require_stable=True).partitions == {FOO_1: PartitionData(9)}


def test_fetch_all_offsets_with_pending_transactional_offsets() -> None:
    cache = with_pending(*commits(foo_0=1, foo_1=2))
    stable = cache.get_offsets(GROUP, require_stable=True).partitions
    assert {place: data.error for place, data in stable.items()} == {
        FOO_0: Errors.NONE,
        FOO_1: Errors.UNSTABLE_OFFSET_COMMIT,
    }
    assert committed(cache) == {FOO_0: 1, FOO_1: 2}


def test_fetch_offsets_with_unknown_group() -> None:
    assert new_cache().get_offsets("unknown", [FOO_0]).partitions == {FOO_0: PartitionData()}
    # Offsets without their group are as none (reference 5.5).
    orphans = new_cache(*commits(foo_0=1), classic_tombstone())
    assert orphans.get_offsets(GROUP, [FOO_0]).partitions == {FOO_0: PartitionData()}


def test_fetch_all_offsets_with_unknown_group() -> None:
    found = new_cache().get_offsets("unknown")
    assert (found.error, found.partitions) == (Errors.NONE, {})


def test_simple_group_offset_commit() -> None:
    cache = new_cache()
    pending = cache.store_offsets(group_of(cache), {FOO_0: OffsetAndMetadata(100, "m", TIMESTAMP, leader_epoch=10)})
    ((_, value),) = pending.records
    assert value is not None
    assert decode_value(1, value) == (
        4,
        {"offset": 100, "leaderEpoch": 10, "metadata": "m", "commitTimestamp": TIMESTAMP},
    )
    assert pending.complete(base_offset=0) == {FOO_0: Errors.NONE}
    assert group_of(cache).is_simple
    assert committed(cache) == {FOO_0: 100}


def test_generic_group_offset_commit_with_retention_time() -> None:
    cache = new_cache()
    offset = OffsetAndMetadata(100, "", TIMESTAMP, expire_timestamp_ms=TIMESTAMP + 1234)
    pending = cache.store_offsets(group_of(cache), {FOO_0: offset})
    assert pending.records[0][1] is not None
    version, value = decode_value(1, pending.records[0][1])
    assert (version, value["expireTimestamp"]) == (1, TIMESTAMP + 1234)


@pytest.mark.parametrize(
    ("append", "client"),
    [
        (Errors.NOT_ENOUGH_REPLICAS, Errors.COORDINATOR_NOT_AVAILABLE),
        (Errors.REQUEST_TIMED_OUT, Errors.COORDINATOR_NOT_AVAILABLE),
        (Errors.KAFKA_STORAGE_ERROR, Errors.NOT_COORDINATOR),
        (Errors.MESSAGE_TOO_LARGE, Errors.UNKNOWN_SERVER_ERROR),
        (Errors.NETWORK_EXCEPTION, Errors.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_append_errors_of_the_new_coordinator(append: Errors, client: Errors) -> None:
    cache = new_cache()
    assert cache.store_offsets(group_of(cache), {FOO_0: OffsetAndMetadata(1)}).complete(append) == {FOO_0: client}


def test_a_plain_commit_in_flight_is_stable() -> None:
    """The new coordinator replays what it writes at once: only transactions hold a partition back."""
    cache = new_cache(*commits(foo_0=1))
    plain = cache.store_offsets(group_of(cache), {FOO_0: OffsetAndMetadata(2)})
    assert cache.get_offsets(GROUP, [FOO_0], require_stable=True).partitions[FOO_0].error is Errors.NONE
    plain.complete(base_offset=1)
    cache.store_offsets(group_of(cache), {FOO_0: OffsetAndMetadata(3)}, 7)
    answer = cache.get_offsets(GROUP, [FOO_0], require_stable=True).partitions[FOO_0]
    assert answer.error is Errors.UNSTABLE_OFFSET_COMMIT
    assert committed(cache) == {FOO_0: 2}
