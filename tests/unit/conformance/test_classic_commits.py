"""Commits in flight, as the classic coordinator's own tests have them (reference 9.1)."""

from __future__ import annotations

import pytest

from offsetstream.coordinator.appends import Errors
from offsetstream.coordinator.cache import GroupMetadataCache
from offsetstream.coordinator.replay.offsets import OffsetAndMetadata
from tests.conformance.builder import GROUP, Log
from tests.unit.conformance.support import BAR_0, FOO_0, FOO_1, OFFSET, cache_of, committed, group_of

KAFKA_CLASS = "GroupMetadataManagerTest.scala"
PRODUCER = 232
TOO_LONG = OffsetAndMetadata(5, "s" * 4097)


def test_commit_offset() -> None:
    cache = cache_of()
    pending = cache.store_offsets(group_of(cache), {FOO_0: OFFSET})
    assert len(pending.records) == 1
    assert cache.offsets_of(GROUP).has_pending(FOO_0)
    assert committed(cache) == {}
    assert pending.complete(base_offset=4) == {FOO_0: Errors.NONE}
    assert committed(cache) == {FOO_0: 37}
    assert not cache.offsets_of(GROUP).has_pending(FOO_0)
    assert cache.offsets_of(GROUP).committed[FOO_0].record_offset == 4


def test_transactional_commit_offset_committed() -> None:
    cache = cache_of()
    pending = cache.store_offsets(group_of(cache), {FOO_0: OFFSET}, PRODUCER)
    assert pending.complete(base_offset=4) == {FOO_0: Errors.NONE}
    assert committed(cache) == {}
    assert cache.offsets_of(GROUP).has_pending_transaction(FOO_0)
    cache.apply(0, Log(5).end(PRODUCER).batches)
    assert committed(cache) == {FOO_0: 37}
    assert cache.offsets_of(GROUP).committed[FOO_0].record_offset == 4


def test_transactional_commit_offset_append_failure() -> None:
    cache = cache_of()
    pending = cache.store_offsets(group_of(cache), {FOO_0: OFFSET}, PRODUCER)
    assert pending.complete(Errors.NOT_ENOUGH_REPLICAS) == {FOO_0: Errors.COORDINATOR_NOT_AVAILABLE}
    assert cache.offsets_of(GROUP).is_empty
    cache.apply(0, Log(5).end(PRODUCER).batches)
    assert committed(cache) == {}


def test_transactional_commit_offset_aborted() -> None:
    cache = cache_of()
    cache.store_offsets(group_of(cache), {FOO_0: OFFSET}, PRODUCER).complete(base_offset=4)
    cache.apply(0, Log(5).abort(PRODUCER).batches)
    assert cache.offsets_of(GROUP).is_empty


def test_commit_offset_when_coordinator_has_moved() -> None:
    cache = cache_of()
    group = group_of(cache)
    cache.unload_partition(0)
    moved = GroupMetadataCache("classic")
    assert moved.store_offsets(group_of(cache_of()), {FOO_0: OFFSET}).complete() == {FOO_0: Errors.NOT_COORDINATOR}
    # The group that was unloaded is Dead: somebody else answers for it.
    assert cache.store_offsets(group, {FOO_0: OFFSET}).complete() == {FOO_0: Errors.COORDINATOR_NOT_AVAILABLE}


@pytest.mark.parametrize(
    ("append", "client"),
    [
        (Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.COORDINATOR_NOT_AVAILABLE),
        (Errors.NOT_ENOUGH_REPLICAS, Errors.COORDINATOR_NOT_AVAILABLE),
        (Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Errors.COORDINATOR_NOT_AVAILABLE),
        (Errors.NOT_LEADER_OR_FOLLOWER, Errors.NOT_COORDINATOR),
        (Errors.KAFKA_STORAGE_ERROR, Errors.NOT_COORDINATOR),
        (Errors.MESSAGE_TOO_LARGE, Errors.INVALID_COMMIT_OFFSET_SIZE),
        (Errors.RECORD_LIST_TOO_LARGE, Errors.INVALID_COMMIT_OFFSET_SIZE),
        (Errors.INVALID_FETCH_SIZE, Errors.INVALID_COMMIT_OFFSET_SIZE),
        (Errors.CORRUPT_MESSAGE, Errors.CORRUPT_MESSAGE),
        (Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT, Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    ],
)
def test_commit_offset_failure(append: Errors, client: Errors) -> None:
    cache = cache_of()
    cache.store_offsets(group_of(cache), {FOO_0: OffsetAndMetadata(3)}).complete(base_offset=1)
    pending = cache.store_offsets(group_of(cache), {FOO_0: OFFSET, FOO_1: OFFSET})
    assert pending.complete(append) == {FOO_0: client, FOO_1: client}
    assert committed(cache) == {FOO_0: 3}
    assert not cache.offsets_of(GROUP).in_flight


def test_commit_offset_partial_failure() -> None:
    cache = cache_of()
    pending = cache.store_offsets(group_of(cache), {FOO_0: OFFSET, FOO_1: TOO_LONG})
    assert pending.complete(Errors.NOT_LEADER_OR_FOLLOWER) == {
        FOO_0: Errors.NOT_COORDINATOR,
        FOO_1: Errors.OFFSET_METADATA_TOO_LARGE,
    }


@pytest.mark.parametrize(
    ("metadata", "fits"),
    [("s" * 4096, True), ("é" * 4096, True), ("😀" * 2048, True), ("s" * 4097, False), ("😀" * 2049, False)],
)
def test_offset_metadata_too_large(metadata: str, fits: bool) -> None:
    cache = cache_of()
    pending = cache.store_offsets(group_of(cache), {FOO_0: OffsetAndMetadata(5, metadata)})
    assert len(pending.records) == fits
    answer = Errors.NONE if fits else Errors.OFFSET_METADATA_TOO_LARGE
    assert pending.complete(base_offset=0) == {FOO_0: answer}
    assert committed(cache) == ({FOO_0: 5} if fits else {})
    assert not cache.offsets_of(GROUP).in_flight


def test_offset_metadata_too_large_partial_failure() -> None:
    cache = cache_of()
    pending = cache.store_offsets(group_of(cache), {FOO_0: OFFSET, BAR_0: TOO_LONG})
    assert len(pending.records) == 1
    assert pending.complete(base_offset=0) == {FOO_0: Errors.NONE, BAR_0: Errors.OFFSET_METADATA_TOO_LARGE}
    assert committed(cache) == {FOO_0: 37}


def test_transactional_commit_offset_with_offset_metadata_too_large_partial_failure() -> None:
    cache = cache_of()
    pending = cache.store_offsets(group_of(cache), {FOO_0: OFFSET, BAR_0: TOO_LONG}, PRODUCER)
    assert pending.complete(base_offset=0) == {FOO_0: Errors.NONE, BAR_0: Errors.OFFSET_METADATA_TOO_LARGE}
    cache.apply(0, Log(5).end(PRODUCER).batches)
    assert committed(cache) == {FOO_0: 37}


def test_a_group_that_dies_before_its_commit_is_appended() -> None:
    cache = cache_of()
    pending = cache.store_offsets(group_of(cache), {FOO_0: OFFSET})
    cache.unload_partition(0)
    assert pending.complete(base_offset=3) == {FOO_0: Errors.NONE}
    cache.load_partition(0, (), coordinator_epoch=1)
    assert committed(cache) == {}


def test_what_is_appended_is_what_a_load_reads() -> None:
    cache = cache_of()
    offset = OffsetAndMetadata(37, "é", 7, leader_epoch=3)
    pending = cache.store_offsets(group_of(cache), {FOO_0: offset, FOO_1: OffsetAndMetadata(1, expire_timestamp_ms=9)})
    pending.complete(base_offset=0)
    assert (pending.config.offsets_commit_required_acks, pending.config.offsets_commit_timeout_ms) == (-1, 5000)
    reloaded = cache_of(*pending.records)
    assert reloaded.snapshot() == cache.snapshot()
    assert reloaded.offsets_of(GROUP).committed == cache.offsets_of(GROUP).committed
