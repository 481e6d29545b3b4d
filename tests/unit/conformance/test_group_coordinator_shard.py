"""A shard as a whole (reference 9.5); its replays are in tests/conformance."""

from __future__ import annotations

import pytest

from offsetstream.codec.records import decode_key
from offsetstream.coordinator.appends import Errors
from offsetstream.coordinator.replay.classic_group import GroupState
from tests.conformance.builder import (
    GROUP,
    TIMESTAMP,
    Pair,
    classic,
    classic_member,
    commit,
    commits,
    consumer_member,
    new,
    share_member,
)
from tests.unit.conformance.support import RETENTION, cache_of, committed, group_of

KAFKA_CLASS = "GroupCoordinatorShardTest"


def cleaned(*pairs: Pair, after: int = RETENTION) -> list[int]:
    """The types of the tombstones of a cleanup."""
    cache = cache_of(*pairs, coordinator="new")
    removal = cache.cleanup_group_metadata(TIMESTAMP + after)
    return [decode_key(key)[0] for key in removal.tombstones.get(0, [])]


def test_on_loaded() -> None:
    cache = cache_of(classic(classic_member()), consumer_member(group="other"), coordinator="new")
    assert {group.group_id for group in cache.current_groups()} == {GROUP, "other"}
    assert cache.is_partition_owned(0)


def test_on_unloaded() -> None:
    cache = cache_of(classic(classic_member()), consumer_member(group="other"), coordinator="new")
    group = group_of(cache)
    unloaded = cache.unload_partition(0, 1)
    assert (unloaded.is_accepted, unloaded.groups) == (True, 2)
    assert group.state is GroupState.DEAD
    assert cache.get_offsets(GROUP).error is Errors.NOT_COORDINATOR


def test_schedule_cleanup_group_metadata() -> None:
    # Twice the same: what is gone makes no more tombstones.
    cache = cache_of(*commits(foo_0=1), coordinator="new")
    assert cache.cleanup_group_metadata(TIMESTAMP + RETENTION).groups == 1
    again = cache.cleanup_group_metadata(TIMESTAMP + RETENTION)
    assert (again.offsets, again.groups, again.tombstones) == (0, 0, {})


def test_cleanup_group_metadata_for_consumer_group() -> None:
    assert cleaned(new(3, {"epoch": 1}), *commits(foo_0=1)) == [1, 6, 4, 3]
    assert cleaned(consumer_member(), *commits(bar_0=1)) == [1]
    assert cleaned(consumer_member(), *commits(foo_0=1)) == []


def test_cleanup_group_metadata_for_share_group() -> None:
    assert cleaned(new(11, {"epoch": 1, "metadataHash": 1})) == []
    assert cleaned(share_member()) == []


def test_cleanup_group_metadata_tombstones_when_group_agrees_to_expire() -> None:
    assert cleaned(classic(generation=3), *commits(foo_0=1)) == [1, 2]


def test_delete_groups() -> None:
    cache = cache_of(
        commit("foo", 0, 1, group="simple"),
        classic(classic_member(), group="active"),
        new(3, {"epoch": 1}, group="consumer"),
        coordinator="new",
    )
    errors, removal = cache.delete_groups(["simple", "active", "consumer", "unknown"])
    assert errors == {
        "simple": Errors.NONE,
        "active": Errors.NON_EMPTY_GROUP,
        "consumer": Errors.NONE,
        "unknown": Errors.GROUP_ID_NOT_FOUND,
    }
    assert [decode_key(key)[0] for key in removal.tombstones[0]] == [1, 2, 6, 4, 3]
    assert (removal.offsets, removal.groups) == (1, 2)
    cache.unload_partition(0)
    assert cache.delete_groups(["active"])[0] == {"active": Errors.NOT_COORDINATOR}


@pytest.mark.parametrize("group", [""])
def test_delete_groups_invalid_group_id(group: str) -> None:
    assert cache_of(coordinator="new").delete_groups([group])[0] == {group: Errors.INVALID_GROUP_ID}


def test_on_topics_deleted() -> None:
    cache = cache_of(*commits(foo_0=1, bar_0=2), commit("foo", 1, 3, group="other"), coordinator="new")
    removal = cache.on_topics_deleted({"foo": None})
    assert removal.offsets == 2
    assert {place.topic for place in committed(cache)} == {"bar"}
    assert committed(cache, "other") == {}


def test_the_classic_coordinator_deletes_a_group_with_its_last_offset() -> None:
    for expected, pairs in {(1, 0): (classic(classic_member()),), (1, 1): (classic(),)}.items():
        cache = cache_of(*pairs, *commits(bar_0=1))
        removal = cache.on_topics_deleted({"bar": None})
        assert (removal.offsets, removal.groups) == expected


def test_the_classic_coordinator_writes_no_tombstone_for_pending_commits() -> None:
    cache = cache_of(classic(), *commits(foo_0=1))
    errors, removal = cache.delete_groups([GROUP])
    assert errors == {GROUP: Errors.NONE}
    assert [decode_key(key)[0] for key in removal.tombstones[0]] == [1, 2]
    assert cache.delete_groups([GROUP])[0] == {GROUP: Errors.GROUP_ID_NOT_FOUND}
