"""The committed offsets of groups: what is visible, what is being written, and what open transactions block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from offsetstream.codec.readers import JsonObject
from offsetstream.codec.record_layouts import ZERO_UUID
from offsetstream.errors import IllegalStateError


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A commit: epoch, expiry (ms) and topic id are None where there is none; times are ms since 1970.

    `record_offset` orders commits (`older_than`): that of the commit's record in the offsets partition, in the
    classic coordinator of the first record in its batch; None as long as nothing was appended.
    """

    offset: int
    metadata: str = ""
    commit_timestamp_ms: int = -1
    leader_epoch: int | None = None
    expire_timestamp_ms: int | None = None
    topic_id: str | None = None
    record_offset: int | None = None

    def appended_at(self, record_offset: int) -> OffsetAndMetadata:
        """Return the same commit with the offset of its record."""
        return replace(self, record_offset=record_offset)

    def older_than(self, other: OffsetAndMetadata) -> bool:
        """Whether the record of the other commit comes later in the log; both must have been appended."""
        if self.record_offset is None or other.record_offset is None:
            raise IllegalStateError("a commit that was not appended yet has no place in the log")
        return self.record_offset < other.record_offset


def offset_from_value(value: JsonObject, record_offset: int) -> OffsetAndMetadata:
    """Make a commit of an OffsetCommitValue: -1 and the zero topic id mean none (reference 4.6)."""
    epoch, expiry = value.get("leaderEpoch", -1), value.get("expireTimestamp", -1)
    topic_id = value.get("topicId", ZERO_UUID)
    return OffsetAndMetadata(
        value["offset"],
        value["metadata"],
        value["commitTimestamp"],
        None if epoch == -1 else epoch,
        None if expiry == -1 else expiry,
        None if topic_id == ZERO_UUID else topic_id,
        record_offset,
    )


@dataclass(slots=True)
class GroupOffsets:
    """The offsets of one group: committed, of commits in flight, and per producer of its open transaction."""

    committed: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    in_flight: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    pending: dict[int, dict[TopicPartition, OffsetAndMetadata]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there are none of any kind (Kafka's hasOffsets is the opposite)."""
        return not (self.committed or self.in_flight or self.pending)

    def has_pending_transaction(self, partition: TopicPartition) -> bool:
        """Whether an open transaction holds a commit of the partition."""
        return any(partition in cells for cells in self.pending.values())

    def has_pending(self, partition: TopicPartition) -> bool:
        """Whether a commit of the partition is in flight or in an open transaction: its offset is not stable."""
        return partition in self.in_flight or self.has_pending_transaction(partition)

    def put_if_newer(self, partition: TopicPartition, commit: OffsetAndMetadata) -> None:
        """Take the commit unless the present one has a later record (Kafka's olderThan)."""
        present = self.committed.get(partition)
        if present is None or present.older_than(commit):
            self.committed[partition] = commit


class OffsetsStore:
    """The offsets of all groups of one offsets partition, and which producers have transactions open in which."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupOffsets] = {}
        self.open_groups_for_producer: dict[int, set[str]] = {}

    def of(self, group_id: str) -> GroupOffsets:
        """Return the offsets of a group; they begin empty."""
        return self.groups.setdefault(group_id, GroupOffsets())

    def open_transaction(self, producer_id: int, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the pending commits of a producer in a group; opens its transaction if it has none."""
        self.open_groups_for_producer.setdefault(producer_id, set()).add(group_id)
        return self.of(group_id).pending.setdefault(producer_id, {})

    def close_if_empty(self, producer_id: int, group_id: str) -> None:
        """Forget a producer's transaction in a group once no commit of it is left."""
        offsets = self.groups.get(group_id)
        if offsets is not None and not offsets.pending.get(producer_id):
            offsets.pending.pop(producer_id, None)
            self._forget(producer_id, group_id)

    def complete_transaction(self, producer_id: int, *, is_commit: bool) -> set[str]:
        """End a producer's transaction (completePendingTxnOffsetCommit); return the groups that it touched.

        A commit makes the pending offsets visible, each unless a later record has overtaken it. Raises
        IllegalStateError if one of them was never appended, before anything is changed.
        """
        groups = self.open_groups_for_producer.get(producer_id, set())
        pending = {group_id: self.of(group_id).pending.get(producer_id, {}) for group_id in groups}
        if is_commit and any(c.record_offset is None for cells in pending.values() for c in cells.values()):
            raise IllegalStateError(f"a transaction of producer {producer_id} ends before its commits are appended")
        for group_id, cells in pending.items():
            offsets = self.of(group_id)
            offsets.pending.pop(producer_id, None)
            if is_commit:
                for partition, commit in cells.items():
                    offsets.put_if_newer(partition, commit)
        return self.open_groups_for_producer.pop(producer_id, set())

    def remove_everywhere(self, group_id: str, partition: TopicPartition) -> None:
        """Remove a committed offset and what any open transaction holds of it (the new coordinator's tombstone)."""
        offsets = self.of(group_id)
        offsets.committed.pop(partition, None)
        for producer_id in list(offsets.pending):
            offsets.pending[producer_id].pop(partition, None)
            self.close_if_empty(producer_id, group_id)

    def forget_groups(self, group_ids: Iterable[str]) -> None:
        """Forget the offsets of groups and their producers' transactions."""
        for group_id in group_ids:
            offsets = self.groups.pop(group_id, None)
            for producer_id in () if offsets is None else offsets.pending:
                self._forget(producer_id, group_id)

    def count(self) -> int:
        """Return the number of committed offsets."""
        return sum(len(offsets.committed) for offsets in self.groups.values())

    def items(self) -> Iterator[tuple[str, GroupOffsets]]:
        """Yield every group id with its offsets."""
        yield from self.groups.items()

    def _forget(self, producer_id: int, group_id: str) -> None:
        groups = self.open_groups_for_producer.get(producer_id)
        if groups is not None:
            groups.discard(group_id)
            if not groups:
                del self.open_groups_for_producer[producer_id]
