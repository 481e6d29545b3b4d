"""Group records as the classic coordinator writes them, and its groups in general (reference 9.1)."""

from __future__ import annotations

from typing import Any

import pytest

from offsetstream.codec.records import decode_value
from offsetstream.coordinator.appends import GROUP as GROUP_ANSWER
from offsetstream.coordinator.appends import Errors
from offsetstream.coordinator.cache import GroupMetadataCache
from offsetstream.coordinator.replay.classic_group import ClassicGroup, GroupState
from tests.conformance.builder import FIXTURE, GROUP, Log, classic, classic_member, commits
from tests.unit.conformance.support import cache_of, group_of, member, rebalance

KAFKA_CLASS = "GroupMetadataManagerTest.scala"


def stored(cache: GroupMetadataCache, group: ClassicGroup) -> dict[str, Any]:
    """The value of the one record that storing the group appends."""
    pending = cache.store_group(group, {})
    assert pending.complete(base_offset=0) == {GROUP_ANSWER: Errors.NONE}
    (record,) = pending.records
    assert record[1] is not None
    version, value = decode_value(2, record[1])
    assert version == 3
    return value


def test_store_empty_group() -> None:
    cache = cache_of()
    group = group_of(cache)
    group.generation, group.protocol_type = 27, "consumer"
    value = stored(cache, group)
    assert (value["generation"], value["protocolType"], value["members"]) == (27, "consumer", [])
    assert (value["protocol"], value["leader"]) == (None, None)


def test_store_empty_simple_group() -> None:
    cache = cache_of()
    value = stored(cache, group_of(cache))
    assert (value["generation"], value["protocolType"]) == (0, "")
    pending = cache.store_group(group_of(cache), {})
    reloaded = cache_of(*pending.records).get_group(GROUP)
    assert isinstance(reloaded, ClassicGroup)
    assert (reloaded.protocol_type, reloaded.is_simple) == (None, True)


@pytest.mark.parametrize(
    ("append", "client"),
    [
        (Errors.NONE, Errors.NONE),
        (Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.COORDINATOR_NOT_AVAILABLE),
        (Errors.NOT_ENOUGH_REPLICAS, Errors.COORDINATOR_NOT_AVAILABLE),
        (Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Errors.COORDINATOR_NOT_AVAILABLE),
        (Errors.NOT_LEADER_OR_FOLLOWER, Errors.NOT_COORDINATOR),
        (Errors.MESSAGE_TOO_LARGE, Errors.UNKNOWN_SERVER_ERROR),
        (Errors.RECORD_LIST_TOO_LARGE, Errors.UNKNOWN_SERVER_ERROR),
        (Errors.INVALID_FETCH_SIZE, Errors.UNKNOWN_SERVER_ERROR),
        (Errors.REQUEST_TIMED_OUT, Errors.REBALANCE_IN_PROGRESS),
        (Errors.CORRUPT_MESSAGE, Errors.CORRUPT_MESSAGE),
    ],
)
def test_store_group_error_mapping(append: Errors, client: Errors) -> None:
    cache = cache_of()
    assert cache.store_group(group_of(cache), {}).complete(append) == {GROUP_ANSWER: client}


def test_store_non_empty_group() -> None:
    cache = cache_of()
    group = group_of(cache)
    group.add(member("m", subscription=b"\1"))
    rebalance(group)
    value = stored(cache, group)
    assert [(m["memberId"], m["subscription"], m["assignment"]) for m in value["members"]] == [("m", b"\1", b"")]
    assert (value["generation"], value["protocol"], value["leader"]) == (1, "range", "m")


def test_store_non_empty_group_when_coordinator_has_moved() -> None:
    group = group_of(cache_of())
    pending = GroupMetadataCache("classic").store_group(group, {})
    assert pending.records == ()
    assert pending.complete() == {GROUP_ANSWER: Errors.NOT_COORDINATOR}


def test_add_group() -> None:
    cache = cache_of()
    first = ClassicGroup("foo")
    assert cache.add_group(first) is first
    assert cache.add_group(ClassicGroup("foo")) is first
    assert cache.get_or_maybe_create_group("foo", create_if_not_exists=True) is first
    assert cache.get_or_maybe_create_group("bar", create_if_not_exists=False) is None


def test_group_not_exists() -> None:
    cache = GroupMetadataCache("classic")
    partition = cache.partition_for(GROUP)
    assert not cache.group_not_exists(GROUP)  # not owned
    cache.add_partition_ownership(partition)
    assert cache.group_not_exists(GROUP)
    group = ClassicGroup(GROUP)
    cache.add_group(group)
    assert not cache.group_not_exists(GROUP)
    group.transition_to(GroupState.DEAD)
    assert cache.group_not_exists(GROUP)


def _loaded(epoch: int) -> GroupMetadataCache:
    cache = cache_of(coordinator="classic")
    cache.unload_partition(0)
    log = Log(15).write(*commits(**FIXTURE), classic(classic_member()))
    assert cache.load_partition(0, log.batches, coordinator_epoch=epoch).status == "loaded"
    return cache


def test_load_offsets_and_group_ignored() -> None:
    cache = _loaded(2)
    cache.unload_partition(0, 2)
    assert cache.get_group(GROUP) is None
    assert cache.load_partition(0, Log().write(*commits(**FIXTURE)).batches, coordinator_epoch=1).status == "ignored"
    assert cache.get_group(GROUP) is None
    assert cache.ownership.epochs == {0: 2}


def test_unload_offsets_and_group() -> None:
    cache = _loaded(2)
    unloaded = cache.unload_partition(0, 2)
    assert (unloaded.is_accepted, unloaded.groups, unloaded.offsets) == (True, 1, 3)
    assert cache.get_group(GROUP) is None
    assert cache.ownership.epochs == {0: 2}
    assert not cache.is_partition_owned(0)


def test_unload_offsets_and_group_ignored() -> None:
    cache = _loaded(2)
    assert not cache.unload_partition(0, 1).is_accepted
    assert cache.get_group(GROUP) is not None
    assert cache.ownership.epochs == {0: 2}


def test_unload_offsets_and_group_ignored_after_stop_replica() -> None:
    cache = _loaded(2)
    before = cache.snapshot()
    assert cache.unload_partition(0).is_accepted
    assert cache.get_group(GROUP) is None
    assert cache.ownership.epochs == {0: 2}
    log = Log(15).write(*commits(**FIXTURE), classic(classic_member()))
    assert cache.load_partition(0, log.batches, coordinator_epoch=3).status == "loaded"
    assert cache.snapshot() == before


def test_metrics() -> None:
    cache = cache_of(classic(classic_member()), classic(group="a"), *commits(**FIXTURE))
    states = sorted(str(group.state) for group in cache.current_groups())
    assert states == ["Empty", "Stable"]
    group_of(cache).transition_to(GroupState.PREPARING_REBALANCE)
    assert sorted(str(group.state) for group in cache.current_groups()) == ["Empty", "PreparingRebalance"]
