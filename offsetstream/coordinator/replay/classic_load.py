"""The classic coordinator's load of one partition: a scan, then the groups are published (reference 4.2-4.7)."""

from __future__ import annotations

from offsetstream.codec.record_batches import ControlType, RecordBatch, control_type
from offsetstream.coordinator.replay.classic_group import ClassicGroup, classic_group_from_value
from offsetstream.coordinator.replay.decoded import CLASSIC_TYPES, DecodedRecord
from offsetstream.coordinator.replay.group_states import GroupState
from offsetstream.coordinator.replay.offsets import OffsetsStore, TopicPartition, offset_from_value
from offsetstream.coordinator.replay.partition_replay import Group, PartitionReplay


class ClassicLoad(PartitionReplay):
    """What the scan has found, and the groups of it that are published.

    `cached` says of every group in the broker's cache which load published it; the first one stays. A scan may go
    on after it was published: what it finds is published anew.
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
        """Look at the first record only: COMMIT makes pending commits visible, any other type drops them."""
        if batch.records:
            is_commit = control_type(batch.records[0]) == ControlType.COMMIT
            self._touched |= self.offsets.complete_transaction(batch.producer_id, is_commit=is_commit)

    def replay_record(self, record: DecodedRecord, batch: RecordBatch) -> None:
        """Take one record into the scan; raises IllegalStateError where a broker's load fails."""
        if record.key_type == 2:  # noqa: PLR2004 - GroupMetadata
            self._scan_group(record)
        else:
            self._scan_offset(record, batch)
        self._touched.add(record.group_id)

    def publish(self, now_ms: int) -> str | None:
        """Put the groups that changed into the cache; return what a broker logs as an error at the end, if anything.

        A group of which only offsets are left, pending ones included, is a new Empty one, `now_ms` being since when.
        """
        for group_id in self._touched:
            self._publish(group_id, now_ms)
        # Kafka throws at the first such group, when everything is published (reference 4.7 item 5).
        unexpected = [g for g in sorted(self._removed_groups) if g in self._cached and not self._has_committed(g)]
        self._removed_groups.clear()
        self._touched.clear()
        if unexpected:
            return f"Unexpected unload of active group {unexpected[0]} while loading partition"
        return None

    def add(self, group: Group) -> None:
        """Put a group into the cache; no group of its id is there."""
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
            cells = self.offsets.open_transaction(batch.producer_id, record.group_id)
        else:
            cells = self.offsets.of(record.group_id).committed
        if record.value is None:  # a tombstone in a transaction removes what is pending in it, and no more
            cells.pop(partition, None)
            self.offsets.close_if_empty(batch.producer_id, record.group_id)
        else:
            # All commits of a batch have the offset of the first record that is left of it (reference 4.3).
            cells[partition] = offset_from_value(record.value, batch.records[0].offset)

    def _publish(self, group_id: str, now_ms: int) -> None:
        if self._cached.get(group_id, self) is not self:
            return
        present = None if group_id in self._removed_groups else self.groups.get(group_id)
        group = self._loaded_groups.get(group_id)
        if group is None and self._has_offsets(group_id):
            group = present if isinstance(present, ClassicGroup) else ClassicGroup(group_id, GroupState.EMPTY, now_ms)
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
