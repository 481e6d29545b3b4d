"""Remove expired offsets, the offsets of deleted groups and topics, and groups that have no offsets left.

The classic coordinator deletes a group together with its last offset; the new one at its next cleanup (reference 5.9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from offsetstream.coordinator.client_errors import Errors
from offsetstream.coordinator.expiration import is_expired
from offsetstream.coordinator.fetch import coordinator_error
from offsetstream.coordinator.loaded_partitions import LoadedPartitions
from offsetstream.coordinator.replay.classic_group import ClassicGroup
from offsetstream.coordinator.replay.group_states import GroupState
from offsetstream.coordinator.replay.offsets import GroupOffsets, TopicPartition
from offsetstream.coordinator.replay.partition_replay import Group
from offsetstream.coordinator.replay.share_group import ShareGroup
from offsetstream.coordinator.tombstones import group_tombstones, offset_tombstone


@dataclass(slots=True)
class Removal:
    """How many offsets and groups were removed, and the keys of the tombstones to write, by offsets partition."""

    offsets: int = 0
    groups: int = 0
    tombstones: dict[int, list[bytes]] = field(default_factory=dict)


def cleanup_group_metadata(cache: LoadedPartitions, now_ms: int) -> Removal:
    """See GroupMetadataCache.cleanup_group_metadata. Share groups and their offsets never expire (4.1+)."""
    removal = Removal()
    for group in list(cache.current_groups()):
        if cache.get_group(group.group_id) is not group or isinstance(group, ShareGroup):
            continue  # its record is in a partition that is not the group's own
        offsets = cache.offsets_of(group.group_id)
        expired = _expired(group, offsets, now_ms, cache)
        _remove_offsets(cache, group.group_id, expired, removal)
        if group.state is GroupState.EMPTY and offsets.is_empty:
            _remove_group(cache, group, removal)
    return removal


def delete_groups(cache: LoadedPartitions, group_ids: Iterable[str]) -> tuple[dict[str, Errors], Removal]:
    """See GroupMetadataCache.delete_groups. The new coordinator also writes tombstones for pending offsets."""
    removal, errors = Removal(), {}
    for group_id in group_ids:
        group = cache.get_group(group_id)
        errors[group_id] = _deletion_error(cache, group_id, group)
        if errors[group_id] is not Errors.NONE or group is None:
            continue
        offsets = cache.offsets_of(group_id)
        pending = (
            {partition for commits in offsets.pending.values() for partition in commits} if cache.is_new else set()
        )
        _remove_offsets(cache, group_id, sorted(pending | offsets.committed.keys()), removal)
        _remove_group(cache, group, removal)
    return errors, removal


def delete_offsets(
    cache: LoadedPartitions, group_id: str, partitions: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, Errors], Removal]:
    """See GroupMetadataCache.delete_offsets."""
    removal, partitions = Removal(), list(partitions)
    group = cache.get_group(group_id)
    error = coordinator_error(cache, group_id)
    if error is Errors.NONE and (group is None or group.state is GroupState.DEAD):
        error = Errors.GROUP_ID_NOT_FOUND
    if error is Errors.NONE and isinstance(group, ClassicGroup) and _is_active_without_consumer_protocol(group):
        error = Errors.NON_EMPTY_GROUP
    if error is not Errors.NONE or group is None:
        return dict.fromkeys(partitions, error), removal
    errors = {
        partition: Errors.GROUP_SUBSCRIBED_TO_TOPIC if _is_in_use(group, partition.topic) else Errors.NONE
        for partition in partitions
    }
    _remove_offsets(
        cache,
        group_id,
        [partition for partition, partition_error in errors.items() if partition_error is Errors.NONE],
        removal,
    )
    _remove_if_empty(cache, group, removal)
    return errors, removal


def on_topics_deleted(cache: LoadedPartitions, topic_ids: Mapping[str, str | None]) -> Removal:
    """See GroupMetadataCache.on_topics_deleted."""
    removal = Removal()
    for group in list(cache.current_groups()):
        offsets = cache.offsets_of(group.group_id)
        all_commits = [offsets.committed, offsets.in_flight, *offsets.pending.values()]
        deleted = {
            partition
            for commits in all_commits
            for partition, commit in commits.items()
            if partition.topic in topic_ids and _is_same_topic(topic_ids[partition.topic], commit.topic_id)
        }
        _remove_offsets(cache, group.group_id, sorted(deleted), removal)
        _remove_if_empty(cache, group, removal)
    return removal


def _expired(group: Group, offsets: GroupOffsets, now_ms: int, cache: LoadedPartitions) -> list[TopicPartition]:
    base = group.expiration_base()
    if base is None:
        return []
    protected: Callable[[TopicPartition], bool] = offsets.in_flight.__contains__
    if cache.is_new:
        protected = offsets.has_pending
    in_use = {
        topic: group.is_subscribed_to_topic(topic) for topic in {partition.topic for partition in offsets.committed}
    }
    return [
        partition
        for partition, commit in sorted(offsets.committed.items())
        if not in_use[partition.topic]
        and not protected(partition)
        and is_expired(commit, base(commit), now_ms, cache.config.offsets_retention_ms)
    ]


def _deletion_error(cache: LoadedPartitions, group_id: str, group: Group | None) -> Errors:
    if not group_id:
        return Errors.INVALID_GROUP_ID
    error = coordinator_error(cache, group_id)
    if error is not Errors.NONE:
        return error
    if group is None or group.state is GroupState.DEAD:
        return Errors.GROUP_ID_NOT_FOUND
    return Errors.NONE if group.state is GroupState.EMPTY else Errors.NON_EMPTY_GROUP


def _is_active_without_consumer_protocol(group: ClassicGroup) -> bool:
    return group.state is not GroupState.EMPTY and not group.uses_consumer_protocol


def _is_in_use(group: Group, topic: str) -> bool:
    return group.state is not GroupState.EMPTY and group.is_subscribed_to_topic(topic)


def _is_same_topic(deleted_id: str | None, committed_id: str | None) -> bool:
    return deleted_id is None or committed_id is None or deleted_id == committed_id


def _remove_offsets(
    cache: LoadedPartitions, group_id: str, partitions: Iterable[TopicPartition], removal: Removal
) -> None:
    owner = cache.owner(group_id)
    if owner is None:
        return
    offsets = owner.offsets.for_group(group_id)
    for partition in partitions:
        was_committed = offsets.committed.pop(partition, None) is not None
        was_pending = offsets.has_pending_transaction(partition)
        offsets.in_flight.pop(partition, None)
        for commits in offsets.pending.values():
            commits.pop(partition, None)  # in the classic coordinator an empty transaction stays open until its marker
        if was_committed or (was_pending and cache.is_new):
            removal.offsets += was_committed
            _write(cache, group_id, [offset_tombstone(group_id, partition)], removal)
    if cache.is_new:
        for producer_id in list(offsets.pending):
            owner.offsets.close_if_empty(producer_id, group_id)


def _remove_if_empty(cache: LoadedPartitions, group: Group, removal: Removal) -> None:
    if not cache.is_new and group.state is GroupState.EMPTY and cache.offsets_of(group.group_id).is_empty:
        _remove_group(cache, group, removal)


def _remove_group(cache: LoadedPartitions, group: Group, removal: Removal) -> None:
    owner = cache.owner(group.group_id)
    if owner is None:
        return
    owner.remove(group.group_id)
    removal.groups += 1
    if cache.is_new or (isinstance(group, ClassicGroup) and group.generation > 0):
        # A group of generation 0 has offsets only: the classic coordinator never wrote a record for it.
        _write(cache, group.group_id, group_tombstones(group), removal)
    if isinstance(group, ClassicGroup):
        group.transition_to(GroupState.DEAD, cache.clock())


def _write(cache: LoadedPartitions, group_id: str, keys: list[bytes], removal: Removal) -> None:
    removal.tombstones.setdefault(cache.partition_for(group_id), []).extend(keys)
