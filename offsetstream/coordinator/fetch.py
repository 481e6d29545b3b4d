"""Answer OffsetFetch (getOffsets of the classic coordinator, fetchOffsets and fetchAllOffsets of the new one)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from offsetstream.coordinator.client_errors import Errors
from offsetstream.coordinator.loaded_partitions import LoadedPartitions
from offsetstream.coordinator.replay.group_states import GroupState
from offsetstream.coordinator.replay.offsets import GroupOffsets, TopicPartition

INVALID_OFFSET = -1


@dataclass(frozen=True, slots=True)
class PartitionData:
    """The committed offset of a partition. Without one, the offset is `INVALID_OFFSET` and the leader epoch None."""

    offset: int = INVALID_OFFSET
    leader_epoch: int | None = None
    metadata: str = ""
    error: Errors = Errors.NONE


@dataclass(frozen=True, slots=True)
class FetchedOffsets:
    """An answer: one error for the request, or the data of each partition."""

    error: Errors = Errors.NONE
    partitions: Mapping[TopicPartition, PartitionData] = field(default_factory=dict)


def coordinator_error(cache: LoadedPartitions, group_id: str) -> Errors:
    """Return the error for every request about a group; NONE if this broker owns its partition."""
    partition = cache.partition_for(group_id)
    if cache.is_partition_loading(partition):
        return Errors.COORDINATOR_LOAD_IN_PROGRESS
    return Errors.NONE if cache.is_partition_owned(partition) else Errors.NOT_COORDINATOR


def get_offsets(
    cache: LoadedPartitions,
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool,
    topic_ids: Mapping[str, str],
) -> FetchedOffsets:
    """See GroupMetadataCache.get_offsets. An unknown or Dead group has no offsets, whatever was committed for it."""
    error = coordinator_error(cache, group_id)
    if error is not Errors.NONE:
        return FetchedOffsets(error)
    group = cache.get_group(group_id)
    exists = group is not None and group.state is not GroupState.DEAD
    offsets = cache.offsets_of(group_id) if exists else GroupOffsets()
    wanted = list(offsets.committed if partitions is None else partitions)
    # The new coordinator replays its own writes at once: outside a transaction nothing is pending.
    is_pending = offsets.has_pending_transaction if cache.is_new else offsets.has_pending
    unstable = {partition for partition in wanted if require_stable and is_pending(partition)}
    return FetchedOffsets(
        partitions={
            partition: PartitionData(error=Errors.UNSTABLE_OFFSET_COMMIT)
            if partition in unstable
            else _data(offsets, partition, topic_ids)
            for partition in wanted
        }
    )


def _data(offsets: GroupOffsets, partition: TopicPartition, topic_ids: Mapping[str, str]) -> PartitionData:
    commit = offsets.committed.get(partition)
    topic_id = topic_ids.get(partition.topic)
    if commit is None or (topic_id is not None and commit.topic_id not in (None, topic_id)):
        return PartitionData()
    return PartitionData(commit.offset, commit.leader_epoch, commit.metadata)
