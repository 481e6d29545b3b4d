"""The classic coordinator's load of one partition: scan the log, then publish the groups (reference 4.2-4.7)."""

from __future__ import annotations

from offsetstream.codec.batches import ControlType, RecordBatch, control_type
from offsetstream.coordinator.replay.classic_group import ClassicGroup, classic_group_from_value
from offsetstream.coordinator.replay.decoded import CLASSIC_TYPES, DecodedRecord
from offsetstream.coordinator.replay.group_states import GroupState
from offsetstream.coordinator.replay.offsets import OffsetsStore, TopicPartition, offset_from_value
from offsetstream.coordinator.replay.partition_replay import Group, PartitionReplay


class ClassicLoad(PartitionReplay):
    """The groups and offsets that the scan has found, and which of the groups are published.

    `cached` has, for every group in the broker's cache, the load that published it; the first one stays. A scan may
    continue after it was published. Publish again to make visible what it then finds.
    """

    known_types = CLASSIC_TYPES

    def __init__(self, cached: dict[str, PartitionReplay]) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetsStore()
        self._cached = cached
        self._loaded_groups: dict[str, ClassicGroup] = {}
        self._removed_groups: set[str] = set()
        self._touched: set[str] = set()

    def replay_control_batch(self, batch: RecordBatch) -> None:
        """Use only the first record: COMMIT makes pending commits visible, any other type drops them."""
        if batch.records:
            is_commit = control_type(batch.records[0]) == ControlType.COMMIT
            self._touched |= self.offsets.complete_transaction(batch.producer_id, is_commit=is_commit)

    def replay_record(self, record: DecodedRecord, batch: RecordBatch) -> None:
        """Add one record to the scan. Raises IllegalStateError where a broker's load fails."""
        if record.key_type == 2:  # noqa: PLR2004 - GroupMetadata
            self._scan_group(record)
        else:
            self._scan_offset(record, batch)
        self._touched.add(record.group_id)

    def publish(self, now_ms: int) -> str | None:
        """Put the changed groups into the cache. Return what a broker logs as an error at the end, if anything.

        A group that has only offsets, including pending ones, becomes a new Empty group with the timestamp `now_ms`.
        """
        for group_id in self._touched:
            self._publish(group_id, now_ms)
        # Kafka throws at the first such group, after everything is published (reference 4.7 item 5).
        unexpected = [g for g in sorted(self._removed_groups) if g in self._cached and not self._has_committed(g)]
        self._removed_groups.clear()
        self._touched.clear()
        if unexpected:
            return f"Unexpected unload of active group {unexpected[0]} while loading partition"
        return None

    def add(self, group: Group) -> None:
        """Put a group into the cache. It must not have a group with this id yet."""
        self.groups[group.group_id] = group
        self._cached[group.group_id] = self

    def remove(self, group_id: str) -> None:
        """Remove a group of this load and its offsets."""
        self.groups.pop(group_id, None)
        self._loaded_groups.pop(group_id, None)
        self._cached.pop(group_id, None)
        self.offsets.forget_groups([group_id])

    def _scan_group(self, record: DecodedRecord) -> None:
        if record.value is None:
            self._loaded_groups.pop(record.group_id, None)
            self._removed_groups.add(record.group_id)
        else:
            group = classic_group_from_value(record.group_id, record.version, record.value)
            self._loaded_groups[record.group_id] = group
            self._removed_groups.discard(record.group_id)

    def _scan_offset(self, record: DecodedRecord, batch: RecordBatch) -> None:
        partition = TopicPartition(record.key["topic"], record.key["partition"])
        if batch.is_transactional:
            commits = self.offsets.open_transaction(batch.producer_id, record.group_id)
        else:
            commits = self.offsets.for_group(record.group_id).committed
        if record.value is None:  # a tombstone in a transaction removes only this transaction's pending commit
            commits.pop(partition, None)
            self.offsets.close_if_empty(batch.producer_id, record.group_id)
        else:
            # All commits of a batch have the offset of its first remaining record (reference 4.3).
            commits[partition] = offset_from_value(record.value, batch.records[0].offset)

    def _publish(self, group_id: str, now_ms: int) -> None:
        if self._cached.get(group_id, self) is not self:
            return
        published = None if group_id in self._removed_groups else self.groups.get(group_id)
        group = self._loaded_groups.get(group_id)
        if group is None and self._has_offsets(group_id):
            group = (
                published if isinstance(published, ClassicGroup) else ClassicGroup(group_id, GroupState.EMPTY, now_ms)
            )
        if group is not None:
            self.add(group)
        else:
            self.remove(group_id)

    def _has_offsets(self, group_id: str) -> bool:
        offsets = self.offsets.groups.get(group_id)
        return offsets is not None and not offsets.is_empty

    def _has_committed(self, group_id: str) -> bool:
        offsets = self.offsets.groups.get(group_id)
        return offsets is not None and bool(offsets.committed)
