"""The coordinator's cache: what Kafka's GroupMetadataManager holds and does, in plain Python (reference 4, 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from offsetstream.codec.record_batches import NO_PRODUCER
from offsetstream.coordinator import appends, deletion, fetch
from offsetstream.coordinator.appends import PendingAppend
from offsetstream.coordinator.client_errors import Errors
from offsetstream.coordinator.deletion import Removal
from offsetstream.coordinator.loaded_partitions import LoadedPartitions
from offsetstream.coordinator.replay.classic_group import ClassicGroup
from offsetstream.coordinator.replay.offsets import OffsetAndMetadata, TopicPartition
from offsetstream.coordinator.replay.partition_replay import Group


class GroupMetadataCache(LoadedPartitions):
    """The loaded partitions of a coordinator, with what its clients and its own clock ask of them.

    Writing has two halves, since nothing here does I/O: a call makes the records and remembers what is in flight, and
    the append's outcome is reported to what it returned. Errors are values of Kafka's names, never raised.
    """

    def store_offsets(
        self, group: Group, offsets: Mapping[TopicPartition, OffsetAndMetadata], producer_id: int = NO_PRODUCER
    ) -> PendingAppend:
        """Begin to commit offsets, in a producer's transaction if one is given (storeOffsets, commitOffset).

        Partitions whose metadata is too long are refused alone; a Dead group, or one that is not coordinated here,
        refuses all.
        """
        return appends.store_offsets(self, group, offsets, producer_id)

    def store_group(self, group: ClassicGroup, assignment: Mapping[str, bytes]) -> PendingAppend:
        """Begin to write a classic group with its members' assignments (storeGroup)."""
        return appends.store_group(self, group, assignment)

    def get_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        topic_ids: Mapping[str, str] | None = None,
    ) -> fetch.FetchedOffsets:
        """Answer an OffsetFetch: the given partitions, or all that have a committed offset.

        `require_stable` makes a partition with a commit in flight or in an open transaction UNSTABLE. An offset
        that was committed for another topic of the same name is as none, where `topic_ids` has the name (4.1+).
        """
        return fetch.get_offsets(self, group_id, partitions, require_stable=require_stable, topic_ids=topic_ids or {})

    def cleanup_group_metadata(self, now_ms: int | None = None) -> Removal:
        """Remove what has expired, and groups that are empty and have no offsets (reference 4.11, 5.6, KIP-211)."""
        return deletion.cleanup_group_metadata(self, self.clock() if now_ms is None else now_ms)

    def delete_groups(self, group_ids: Iterable[str]) -> tuple[dict[str, Errors], Removal]:
        """Delete groups without members, and all their offsets (DeleteGroups)."""
        return deletion.delete_groups(self, group_ids)

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, Errors], Removal]:
        """Delete offsets of topics that no member subscribes to (OffsetDelete, KIP-496)."""
        return deletion.delete_offsets(self, group_id, partitions)

    def on_topics_deleted(self, topic_ids: Mapping[str, str | None]) -> Removal:
        """Remove the offsets of deleted topics: names, with their ids where known (then others' offsets stay, 4.3+)."""
        return deletion.on_topics_deleted(self, topic_ids)
