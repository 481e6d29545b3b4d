"""What a load leaves beside groups and offsets: pending commits, subscriptions, buffers, states (reference 4, 9.1)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from offsetstream.codec.batches import RecordBatch
from offsetstream.coordinator.appends import Errors
from offsetstream.coordinator.cache import GroupMetadataCache
from offsetstream.coordinator.loaded_partitions import OffsetConfig
from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.coordinator.replay.classic_group import ClassicGroup
from offsetstream.errors import UsageError
from tests.conformance.builder import (
    FIXTURE,
    GROUP,
    T1,
    TIMESTAMP,
    Log,
    classic,
    classic_member,
    classic_tombstone,
    commit,
    commits,
    forget,
    subscription,
)
from tests.conformance.case import BOTH
from tests.unit.conformance.support import BAR_0, FOO_0, FOO_1, cache_of, committed, group_of

BOTH_COORDINATORS = pytest.mark.parametrize("coordinator", BOTH)
MIB = 1024 * 1024


@BOTH_COORDINATORS
def test_pending_commits_are_kept_per_producer_until_their_marker(coordinator: Coordinator) -> None:
    log = Log().write(*commits(foo_0=1, foo_1=2), producer=7).write(*commits(foo_1=3), producer=8)
    cache = cache_of(log=log, coordinator=coordinator)
    offsets = cache.offsets_of(GROUP)
    assert not offsets.is_empty
    assert {producer: set(cells) for producer, cells in offsets.pending.items()} == {7: {FOO_0, FOO_1}, 8: {FOO_1}}
    assert offsets.has_pending(FOO_1)
    cache.apply(0, Log(3).end(8).batches)
    assert committed(cache) == {FOO_1: 3}
    cache.apply(0, Log(4).end(7).batches)
    assert committed(cache) == {FOO_0: 1, FOO_1: 3}
    assert cache.offsets_of(GROUP).pending == {}


@pytest.mark.parametrize(("coordinator", "places"), [("classic", [15, 15, 15]), ("new", [15, 16, 17])])
def test_commits_count_as_of_their_batch_or_of_their_record(coordinator: Coordinator, places: list[int]) -> None:
    cache = cache_of(log=Log(15).write(*commits(**FIXTURE)), coordinator=coordinator)
    found = cache.offsets_of(GROUP).committed
    assert [found[place].record_offset for place in (FOO_0, FOO_1, BAR_0)] == places


@BOTH_COORDINATORS
def test_what_an_offset_has_besides(coordinator: Coordinator) -> None:
    cache = cache_of(
        commit("foo", 0, 1, version=1, expireTimestamp=TIMESTAMP + 1),
        commit("foo", 1, 2, version=4, leaderEpoch=3, topicId=T1, metadata="m"),
        commit("bar", 0, 3, leaderEpoch=-2),
        coordinator=coordinator,
    )
    found = cache.offsets_of(GROUP).committed
    assert found[FOO_0].expire_timestamp_ms == TIMESTAMP + 1
    assert (found[FOO_1].leader_epoch, found[FOO_1].topic_id, found[FOO_1].metadata) == (3, T1, "m")
    assert (found[FOO_1].expire_timestamp_ms, found[FOO_0].leader_epoch, found[FOO_0].topic_id) == (None, None, None)
    assert found[BAR_0].leader_epoch == -2


@BOTH_COORDINATORS
def test_subscribed_topics_and_static_members(coordinator: Coordinator) -> None:
    cache = cache_of(
        classic(
            classic_member("a", subscription=subscription("foo"), groupInstanceId="i"),
            classic_member("b", subscription=b"\xff\xff" + subscription("bar")[2:]),  # read as version 0 all the same
        ),
        classic(group="empty"),
        classic(classic_member(), group="faulty"),
        classic(classic_member(), group="sr", protocolType="sr"),
        coordinator=coordinator,
    )
    groups = {group.group_id: group for group in cache.current_groups() if isinstance(group, ClassicGroup)}
    assert groups[GROUP].static_members == {"i": "a"}
    assert groups[GROUP].subscribed_topics() == frozenset({"foo", "bar"})
    assert groups["empty"].subscribed_topics() == frozenset()
    assert groups["faulty"].subscribed_topics() is None
    assert groups["sr"].subscribed_topics() is None


@pytest.mark.parametrize(("version", "rebalance", "expected"), [(0, 1, 10_000), (1, 30_000, 30_000), (3, -1, 10_000)])
def test_rebalance_timeouts_of_old_records(version: int, rebalance: int, expected: int) -> None:
    group = group_of(cache_of(classic(classic_member("m", rebalanceTimeout=rebalance), version=version)))
    assert group.members["m"].rebalance_timeout_ms == expected


@BOTH_COORDINATORS
def test_the_load_buffer_grows_with_the_largest_batch(coordinator: Coordinator) -> None:
    large = classic(classic_member(assignment=bytes(6 * MIB)))
    cache = GroupMetadataCache(coordinator, OffsetConfig(offsets_load_buffer_size=5 * MIB))
    result = cache.load_partition(0, Log().write(*commits(foo_0=1)).write(large).batches)
    assert (result.status, result.records, result.groups, result.offsets) == ("loaded", 2, 1, 1)
    assert 6 * MIB < result.buffer_size <= result.size
    group = next(iter(cache.current_groups()))
    assert isinstance(group, ClassicGroup)
    assert len(group.members["98098230493"].assignment) == 6 * MIB


@BOTH_COORDINATORS
def test_a_partition_is_loading_while_its_batches_last(coordinator: Coordinator) -> None:
    cache = GroupMetadataCache(coordinator, OffsetConfig(offsets_topic_num_partitions=1))
    seen: list[Errors] = []

    def batches() -> Iterator[RecordBatch]:
        seen.append(cache.get_offsets(GROUP).error)
        assert cache.is_partition_loading(0)
        assert cache.load_partition(0, (), coordinator_epoch=9).status == "ignored"
        yield from Log().write(*commits(foo_0=1)).batches

    assert cache.get_offsets(GROUP).error is Errors.NOT_COORDINATOR
    cache.load_partition(0, batches())
    assert seen == [Errors.COORDINATOR_LOAD_IN_PROGRESS]
    assert cache.get_offsets(GROUP).error is Errors.NONE


BROKEN = Log().write(*commits(foo_0=1), (b"\0\2\0\3foo", b"\0\3broken"), *commits(foo_1=2)).batches


def test_a_failed_load_of_the_classic_coordinator() -> None:
    cache = GroupMetadataCache("classic", OffsetConfig(offsets_topic_num_partitions=1))
    result = cache.load_partition(0, BROKEN)
    assert (result.status, result.error) == ("failed", "record at offset 1: truncated value")
    assert cache.is_partition_owned(0)
    assert cache.snapshot() == {"groups": [], "offsets": []}
    assert (cache.get_offsets(GROUP).error, cache.get_offsets(GROUP).partitions) == (Errors.NONE, {})
    assert cache.load_partition(0, (), coordinator_epoch=1).status == "ignored"  # it is not tried again


def test_a_failed_load_of_the_new_coordinator() -> None:
    cache = GroupMetadataCache("new", OffsetConfig(offsets_topic_num_partitions=1))
    assert cache.load_partition(0, BROKEN, coordinator_epoch=5).status == "failed"
    assert cache.ownership.failed == {0}
    assert cache.snapshot() == {"groups": [], "offsets": []}
    assert cache.get_offsets(GROUP).error is Errors.NOT_COORDINATOR
    assert cache.load_partition(0, (), coordinator_epoch=5).status == "ignored"
    assert cache.load_partition(0, (), coordinator_epoch=6).status == "loaded"
    assert cache.ownership.failed == set()


@BOTH_COORDINATORS
def test_bad_records_may_be_left_aside(coordinator: Coordinator) -> None:
    cache = GroupMetadataCache(coordinator, OffsetConfig(offsets_topic_num_partitions=1), on_bad_record="skip")
    two = classic(classic_member("a", groupInstanceId="i"), classic_member("b", groupInstanceId="i"), group="twice")
    result = cache.load_partition(0, (*BROKEN, *Log(10).write((None, None), two).batches))
    assert result.status == "loaded"
    assert list(result.skipped) == [1, 10, 11]
    assert committed(cache) == {FOO_0: 1, FOO_1: 2}


def test_an_unexpected_unload_is_a_problem_and_no_failure() -> None:
    log = Log().write(classic(classic_member()), classic_tombstone()).write(*commits(foo_0=1), producer=7)
    result = GroupMetadataCache("classic").load_partition(0, log.batches)
    assert result.status == "loaded"
    assert result.problem == "Unexpected unload of active group foo while loading partition"
    fine = Log().write(classic(classic_member()), classic_tombstone(), *commits(foo_0=1)).batches
    assert GroupMetadataCache("classic").load_partition(0, fine).problem is None


def test_a_group_of_another_partition_comes_first_in_the_classic_cache() -> None:
    cache = GroupMetadataCache("classic")
    home = cache.partition_for(GROUP)
    cache.load_partition(home + 1, Log().write(classic(generation=1), *commits(foo_0=1)).batches)
    cache.load_partition(home, Log().write(classic(generation=2), *commits(foo_0=2)).batches)
    assert [(g["generation"]) for g in cache.snapshot()["groups"]] == [1]
    assert committed(cache) == {FOO_0: 1}
    # An unload takes the groups whose hash gives the partition, wherever they came from.
    assert cache.unload_partition(home + 1).groups == 0
    assert cache.unload_partition(home).groups == 1
    assert cache.snapshot() == {"groups": [], "offsets": []}


def test_a_group_of_another_partition_is_out_of_reach_of_the_new_coordinator() -> None:
    cache = GroupMetadataCache("new")
    home = cache.partition_for(GROUP)
    cache.load_partition(home + 1, Log().write(*commits(foo_0=1)).batches)
    cache.load_partition(home, ())
    assert cache.get_group(GROUP) is None
    assert committed(cache) == {}
    assert [group["group_id"] for group in cache.snapshot()["groups"]] == [GROUP]


@BOTH_COORDINATORS
def test_hooks_of_load_and_unload(coordinator: Coordinator) -> None:
    cache = GroupMetadataCache(coordinator, OffsetConfig(offsets_topic_num_partitions=1))
    seen: list[str] = []
    batches = Log().write(*commits(foo_0=1), classic(group="other")).batches
    cache.load_partition(0, batches, on_group_loaded=lambda group: seen.append(f"loaded {group.group_id}"))
    cache.unload_partition(0, on_group_unloaded=lambda group: seen.append(f"{group.group_id} {group.state}"))
    assert sorted(seen) == ["foo Dead", "loaded foo", "loaded other", "other Dead"]


@BOTH_COORDINATORS
def test_producers_are_forgotten_with_their_partition(coordinator: Coordinator) -> None:
    cache = cache_of(log=Log().write(*commits(foo_0=1), producer=7), coordinator=coordinator)
    cache.unload_partition(0)
    cache.load_partition(0, (), coordinator_epoch=1)
    cache.apply(0, Log(1).end(7).batches)
    assert committed(cache) == {}


@BOTH_COORDINATORS
def test_what_is_not_owned_is_not_applied(coordinator: Coordinator) -> None:
    cache = GroupMetadataCache(coordinator)
    assert cache.apply(3, Log().write(forget("foo", 0)).batches).status == "ignored"


def test_a_group_stays_the_same_object_while_records_are_applied() -> None:
    log = Log().write(classic(classic_member()), classic_tombstone(), *commits(foo_0=1))
    cache = cache_of(log=log)
    group = cache.get_group(GROUP)
    assert cache.apply(0, Log(3).write(*commits(foo_0=2)).batches).problem is None
    assert cache.get_group(GROUP) is group
    cache.apply(0, Log(4).write(classic(generation=9)).batches)
    assert cache.get_group(GROUP) is not group


def test_there_are_two_coordinators() -> None:
    with pytest.raises(UsageError, match="choose classic or new"):
        GroupMetadataCache("old")  # type: ignore[arg-type] # as a caller without types may
