"""A cache with one offsets partition and a clock that a test sets."""

from __future__ import annotations

from typing import Any

from offsetstream.codec.records import decode_key
from offsetstream.coordinator.cache import GroupMetadataCache, Removal
from offsetstream.coordinator.loaded_partitions import OffsetConfig
from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.coordinator.replay.classic_group import ClassicGroup, ClassicMember, GroupState
from offsetstream.coordinator.replay.offsets import OffsetAndMetadata, TopicPartition
from tests.conformance.builder import GROUP, TIMESTAMP, Log, Pair, commit

RETENTION = 1000
FOO_0, FOO_1, BAR_0 = TopicPartition("foo", 0), TopicPartition("foo", 1), TopicPartition("bar", 0)
PENDING = commit("foo", 1, 9)
OFFSET = OffsetAndMetadata(37, "metadata", TIMESTAMP)


class Clock:
    """The present, in ms since 1970."""

    def __init__(self) -> None:
        self.now = TIMESTAMP

    def __call__(self) -> int:
        return self.now


def cache_of(
    *pairs: Pair, coordinator: Coordinator = "classic", log: Log | None = None, **config: Any
) -> GroupMetadataCache:
    """A cache that has loaded one batch of these records, or a log."""
    settings = {"offsets_topic_num_partitions": 1, "offsets_retention_ms": RETENTION} | config
    cache = GroupMetadataCache(coordinator, OffsetConfig(**settings), clock=Clock())
    batches = log.batches if log is not None else (Log().write(*pairs).batches if pairs else ())
    result = cache.load_partition(0, batches)
    assert result.status == "loaded", result.error
    return cache


def group_of(cache: GroupMetadataCache, group_id: str = GROUP) -> ClassicGroup:
    group = cache.get_or_maybe_create_group(group_id, create_if_not_exists=True)
    assert isinstance(group, ClassicGroup)
    return group


def committed(cache: GroupMetadataCache, group_id: str = GROUP) -> dict[TopicPartition, int]:
    """The offsets that clients may see."""
    return {place: data.offset for place, data in cache.get_offsets(group_id).partitions.items()}


def member(
    member_id: str = "m", *, protocol_type: str = "consumer", subscription: bytes = b"", instance: str | None = None
) -> ClassicMember:
    return ClassicMember(member_id, instance, "client", "/host", 30_000, 10_000, protocol_type, subscription, b"")


def rebalance(group: ClassicGroup, *, protocol: str | None = "range", generations: int = 1) -> None:
    """Let a group end some rebalances; with members it is Stable then."""
    for _ in range(generations):
        group.transition_to(GroupState.PREPARING_REBALANCE)
        group.init_next_generation(protocol, TIMESTAMP)
        if group.members:
            group.transition_to(GroupState.STABLE, TIMESTAMP)


def new_cache(*pairs: Pair, log: Log | None = None) -> GroupMetadataCache:
    """As `cache_of`, of the new coordinator."""
    return cache_of(*pairs, coordinator="new", log=log)


def with_pending(*pairs: Pair, pending: Pair = PENDING) -> GroupMetadataCache:
    """A cache of the new coordinator with `pending` in an open transaction."""
    return new_cache(log=Log().write(*pairs).write(pending, producer=7))


def written(removal: Removal) -> list[tuple[int, str, int]]:
    """Topic and partition of the offset tombstones, or the types of others."""
    keys = [decode_key(key) for key in removal.tombstones.get(0, [])]
    return [(kind, data.get("topic", ""), data.get("partition", -1)) for kind, data in keys]
