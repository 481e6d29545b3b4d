"""The coordinator's cache: state and operations of Kafka's GroupMetadataManager, in plain Python (reference 4, 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from offsetstream.codec.batches import NO_PRODUCER
from offsetstream.coordinator import appends, deletion, fetch
from offsetstream.coordinator.appends import PendingAppend
from offsetstream.coordinator.client_errors import Errors
from offsetstream.coordinator.deletion import Removal
from offsetstream.coordinator.loaded_partitions import LoadedPartitions
from offsetstream.coordinator.replay.classic_group import ClassicGroup
from offsetstream.coordinator.replay.offsets import OffsetAndMetadata, TopicPartition
from offsetstream.coordinator.replay.partition_replay import Group


class GroupMetadataCache(LoadedPartitions):
    """The loaded partitions of a coordinator, with its operations for clients and its periodic cleanup.

    Nothing here does I/O, so a write has two steps. First a call builds the records and marks the commits as in flight.
    Then you append the records and report the result to the object that the call returned. Errors have Kafka's names;
    they are returned, never raised.
    """

    def store_offsets(
        self, group: Group, offsets: Mapping[TopicPartition, OffsetAndMetadata], producer_id: int = NO_PRODUCER
    ) -> PendingAppend:
        """Start to commit offsets, in a producer's transaction if one is given (storeOffsets, commitOffset).

        Metadata that is too long fails its own partition only. A Dead group, or one that this broker does not
        coordinate, fails all partitions.
        """
        return appends.store_offsets(self, group, offsets, producer_id)

    def store_group(self, group: ClassicGroup, assignment: Mapping[str, bytes]) -> PendingAppend:
        """Start to write a classic group with its members' assignments (storeGroup)."""
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

        With `require_stable`, a partition with a commit in flight or in an open transaction gets
        UNSTABLE_OFFSET_COMMIT. If `topic_ids` has the topic's id, an offset that was committed for another topic of
        this name counts as none (4.1+).
        """
        return fetch.get_offsets(self, group_id, partitions, require_stable=require_stable, topic_ids=topic_ids or {})

    def cleanup_group_metadata(self, now_ms: int | None = None) -> Removal:
        """Remove expired offsets, and Empty groups without offsets (reference 4.11, 5.6, KIP-211)."""
        return deletion.cleanup_group_metadata(self, self.clock() if now_ms is None else now_ms)

    def delete_groups(self, group_ids: Iterable[str]) -> tuple[dict[str, Errors], Removal]:
        """Delete groups without members, and all their offsets (DeleteGroups)."""
        return deletion.delete_groups(self, group_ids)

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, Errors], Removal]:
        """Delete offsets of topics to which no member subscribes (OffsetDelete, KIP-496)."""
        return deletion.delete_offsets(self, group_id, partitions)

    def on_topics_deleted(self, topic_ids: Mapping[str, str | None]) -> Removal:
        """Remove the offsets of deleted topics. `topic_ids` has each topic's name and its id, None if unknown.

        Where the id is known, offsets of another topic of this name stay (4.3+).
        """
        return deletion.on_topics_deleted(self, topic_ids)
