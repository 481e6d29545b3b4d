"""The coordinator's cache: state and operations of Kafka's GroupMetadataManager, in plain Python (reference 4, 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from offsetstream.codec.batches import NO_PRODUCER
from offsetstream.coordinator.appends import (
    CLASSIC_COMMIT_ERRORS,
    CLASSIC_GROUP_ERRORS,
    COMMIT_VERSION,
    GROUP,
    NEW_ERRORS,
    Errors,
    OffsetWrite,
    PendingAppend,
    commit_record,
    group_record,
    group_tombstones,
    offset_tombstone,
)
from offsetstream.coordinator.loaded_partitions import LoadedPartitions
from offsetstream.coordinator.replay.classic_group import ClassicGroup, GroupState
from offsetstream.coordinator.replay.modern_groups import ShareGroup
from offsetstream.coordinator.replay.offsets import GroupOffsets, OffsetAndMetadata, TopicPartition
from offsetstream.coordinator.replay.partition import Group

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


@dataclass(slots=True)
class Removal:
    """How many offsets and groups were removed, and the keys of the tombstones to write, by offsets partition."""

    offsets: int = 0
    groups: int = 0
    tombstones: dict[int, list[bytes]] = field(default_factory=dict)


class GroupMetadataCache(LoadedPartitions):
    """The loaded partitions of a coordinator, with its operations for clients and its periodic cleanup.

    Nothing here does I/O, so a write has two steps. First a call builds the records and marks the commits as in flight.
    Then you append the records and report the result to the object that the call returned. Errors have Kafka's names;
    they are returned, never raised. The classic coordinator deletes a group together with its last offset; the new one
    at its next cleanup (reference 5.9).
    """

    def store_offsets(
        self, group: Group, offsets: Mapping[TopicPartition, OffsetAndMetadata], producer_id: int = NO_PRODUCER
    ) -> PendingAppend:
        """Start to commit offsets, in a producer's transaction if one is given (storeOffsets, commitOffset).

        Metadata that is too long fails its own partition only. A Dead group, or one that this broker does not
        coordinate, fails all partitions.
        """
        partition = self.partition_for(group.group_id)
        accepted = {each: commit for each, commit in offsets.items() if self._is_metadata_valid(commit)}
        error = Errors.COORDINATOR_NOT_AVAILABLE if group.state is GroupState.DEAD else Errors.NONE
        error = self._error(group.group_id) if error is Errors.NONE and accepted else error
        if error is not Errors.NONE:
            return PendingAppend(partition, (), dict.fromkeys(offsets, error), self.config, producer_id)
        too_large = {each: Errors.OFFSET_METADATA_TOO_LARGE for each in offsets if each not in accepted}
        owner = self.owner(group.group_id)
        if not accepted or owner is None:
            return PendingAppend(partition, (), too_large, self.config, producer_id)
        errors = NEW_ERRORS if self.is_new else CLASSIC_COMMIT_ERRORS
        write = OffsetWrite(group, owner.offsets, accepted, producer_id, errors)
        write.prepare()
        version = COMMIT_VERSION[self.coordinator]
        records = tuple(commit_record(group.group_id, each, commit, version) for each, commit in accepted.items())
        return PendingAppend(partition, records, too_large, self.config, producer_id, write.on_append)

    def _is_metadata_valid(self, commit: OffsetAndMetadata) -> bool:
        code_units = len(commit.metadata.encode("utf-16-le", "surrogatepass")) // 2
        return code_units <= self.config.offset_metadata_max_bytes

    def _error(self, group_id: str) -> Errors:
        """Return the error for every request about a group; NONE if this broker owns its partition."""
        partition = self.partition_for(group_id)
        if self.is_partition_loading(partition):
            return Errors.COORDINATOR_LOAD_IN_PROGRESS
        return Errors.NONE if self.is_partition_owned(partition) else Errors.NOT_COORDINATOR

    def store_group(self, group: ClassicGroup, assignment: Mapping[str, bytes]) -> PendingAppend:
        """Start to write a classic group with its members' assignments (storeGroup)."""
        partition = self.partition_for(group.group_id)
        if not self.is_partition_owned(partition):
            return PendingAppend(partition, (), {GROUP: Errors.NOT_COORDINATOR}, self.config)
        client_errors = NEW_ERRORS if self.is_new else CLASSIC_GROUP_ERRORS
        return PendingAppend(
            partition,
            (group_record(group, assignment),),
            {},
            self.config,
            on_append=lambda error, _: {GROUP: client_errors.get(error, error)},
        )

    def get_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        topic_ids: Mapping[str, str] | None = None,
    ) -> FetchedOffsets:
        """Answer an OffsetFetch: the given partitions, or all that have a committed offset.

        With `require_stable`, a partition with a commit in flight or in an open transaction gets
        UNSTABLE_OFFSET_COMMIT. If `topic_ids` has the topic's id, an offset that was committed for another topic of
        this name counts as none (4.1+). An unknown or Dead group has no offsets, whatever was committed for it.
        """
        error = self._error(group_id)
        if error is not Errors.NONE:
            return FetchedOffsets(error)
        group = self.get_group(group_id)
        exists = group is not None and group.state is not GroupState.DEAD
        offsets = self.offsets_of(group_id) if exists else GroupOffsets()
        wanted = list(offsets.committed if partitions is None else partitions)
        # The new coordinator replays its own writes at once: outside a transaction nothing is pending.
        is_pending = offsets.has_pending_transaction if self.is_new else offsets.has_pending
        unstable = {partition for partition in wanted if require_stable and is_pending(partition)}
        return FetchedOffsets(
            partitions={
                partition: PartitionData(error=Errors.UNSTABLE_OFFSET_COMMIT)
                if partition in unstable
                else _fetched(offsets, partition, topic_ids or {})
                for partition in wanted
            }
        )

    def cleanup_group_metadata(self, now_ms: int | None = None) -> Removal:
        """Remove expired offsets, and Empty groups without offsets (reference 4.11, 5.6, KIP-211).

        Share groups and their offsets never expire (4.1+).
        """
        now_ms = self.clock() if now_ms is None else now_ms
        removal = Removal()
        for group in list(self.current_groups()):
            if self.get_group(group.group_id) is not group or isinstance(group, ShareGroup):
                continue  # its record is in a partition that is not the group's own
            offsets = self.offsets_of(group.group_id)
            expired = self._expired(group, offsets, now_ms)
            self._remove_offsets(group.group_id, expired, removal)
            if group.state is GroupState.EMPTY and offsets.is_empty:
                self._remove_group(group, removal)
        return removal

    def _expired(self, group: Group, offsets: GroupOffsets, now_ms: int) -> list[TopicPartition]:
        base = group.expiration_base()
        if base is None:
            return []
        protected: Callable[[TopicPartition], bool] = offsets.in_flight.__contains__
        if self.is_new:
            protected = offsets.has_pending
        in_use = {
            topic: group.is_subscribed_to_topic(topic) for topic in {partition.topic for partition in offsets.committed}
        }
        return [
            partition
            for partition, commit in sorted(offsets.committed.items())
            if not in_use[partition.topic]
            and not protected(partition)
            and commit.is_expired(base(commit), now_ms, self.config.offsets_retention_ms)
        ]

    def delete_groups(self, group_ids: Iterable[str]) -> tuple[dict[str, Errors], Removal]:
        """Delete groups without members, and all their offsets (DeleteGroups).

        The new coordinator also writes tombstones for pending offsets.
        """
        removal, errors = Removal(), {}
        for group_id in group_ids:
            group = self.get_group(group_id)
            errors[group_id] = self._deletion_error(group_id, group)
            if errors[group_id] is not Errors.NONE or group is None:
                continue
            offsets = self.offsets_of(group_id)
            pending = (
                {partition for commits in offsets.pending.values() for partition in commits} if self.is_new else set()
            )
            self._remove_offsets(group_id, sorted(pending | offsets.committed.keys()), removal)
            self._remove_group(group, removal)
        return errors, removal

    def _deletion_error(self, group_id: str, group: Group | None) -> Errors:
        if not group_id:
            return Errors.INVALID_GROUP_ID
        error = self._error(group_id)
        if error is not Errors.NONE:
            return error
        if group is None or group.state is GroupState.DEAD:
            return Errors.GROUP_ID_NOT_FOUND
        return Errors.NONE if group.state is GroupState.EMPTY else Errors.NON_EMPTY_GROUP

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, Errors], Removal]:
        """Delete offsets of topics to which no member subscribes (OffsetDelete, KIP-496)."""
        removal, partitions = Removal(), list(partitions)
        group = self.get_group(group_id)
        is_active = group is not None and group.state is not GroupState.EMPTY
        error = self._error(group_id)
        if error is Errors.NONE and (group is None or group.state is GroupState.DEAD):
            error = Errors.GROUP_ID_NOT_FOUND
        if error is Errors.NONE and isinstance(group, ClassicGroup) and is_active and not group.uses_consumer_protocol:
            error = Errors.NON_EMPTY_GROUP
        if error is not Errors.NONE or group is None:
            return dict.fromkeys(partitions, error), removal
        errors = {
            partition: Errors.GROUP_SUBSCRIBED_TO_TOPIC
            if is_active and group.is_subscribed_to_topic(partition.topic)
            else Errors.NONE
            for partition in partitions
        }
        free = [partition for partition, partition_error in errors.items() if partition_error is Errors.NONE]
        self._remove_offsets(group_id, free, removal)
        self._remove_if_empty(group, removal)
        return errors, removal

    def on_topics_deleted(self, topic_ids: Mapping[str, str | None]) -> Removal:
        """Remove the offsets of deleted topics. `topic_ids` has each topic's name and its id, None if unknown.

        Where the id is known, offsets of another topic of this name stay (4.3+).
        """
        removal = Removal()
        for group in list(self.current_groups()):
            offsets = self.offsets_of(group.group_id)
            all_commits = [offsets.committed, offsets.in_flight, *offsets.pending.values()]
            deleted = {
                partition
                for commits in all_commits
                for partition, commit in commits.items()
                if partition.topic in topic_ids
                and (topic_ids[partition.topic] is None or commit.topic_id in (None, topic_ids[partition.topic]))
            }
            self._remove_offsets(group.group_id, sorted(deleted), removal)
            self._remove_if_empty(group, removal)
        return removal

    def _remove_offsets(self, group_id: str, partitions: Iterable[TopicPartition], removal: Removal) -> None:
        owner = self.owner(group_id)
        if owner is None:
            return
        offsets = owner.offsets.for_group(group_id)
        for partition in partitions:
            was_committed = offsets.committed.pop(partition, None) is not None
            was_pending = offsets.has_pending_transaction(partition)
            offsets.in_flight.pop(partition, None)
            # In the classic coordinator a transaction that becomes empty stays open until its marker.
            for commits in offsets.pending.values():
                commits.pop(partition, None)
            if was_committed or (was_pending and self.is_new):
                removal.offsets += was_committed
                self._write(group_id, [offset_tombstone(group_id, partition)], removal)
        if self.is_new:
            for producer_id in list(offsets.pending):
                owner.offsets.close_if_empty(producer_id, group_id)

    def _remove_if_empty(self, group: Group, removal: Removal) -> None:
        if not self.is_new and group.state is GroupState.EMPTY and self.offsets_of(group.group_id).is_empty:
            self._remove_group(group, removal)

    def _remove_group(self, group: Group, removal: Removal) -> None:
        owner = self.owner(group.group_id)
        if owner is None:
            return
        owner.remove(group.group_id)
        removal.groups += 1
        if self.is_new or (isinstance(group, ClassicGroup) and group.generation > 0):
            # A group of generation 0 has offsets only: the classic coordinator never wrote a record for it.
            self._write(group.group_id, group_tombstones(group), removal)
        if isinstance(group, ClassicGroup):
            group.transition_to(GroupState.DEAD, self.clock())

    def _write(self, group_id: str, keys: list[bytes], removal: Removal) -> None:
        removal.tombstones.setdefault(self.partition_for(group_id), []).extend(keys)


def _fetched(offsets: GroupOffsets, partition: TopicPartition, topic_ids: Mapping[str, str]) -> PartitionData:
    commit = offsets.committed.get(partition)
    topic_id = topic_ids.get(partition.topic)
    if commit is None or (topic_id is not None and commit.topic_id not in (None, topic_id)):
        return PartitionData()
    return PartitionData(commit.offset, commit.leader_epoch, commit.metadata)
