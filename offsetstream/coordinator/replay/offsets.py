"""The committed offsets of groups, their commits in flight, and the pending commits of open transactions.

Also when a committed offset expires (reference 4.11, 5.6, KIP-211).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from offsetstream.codec.record_layouts import ZERO_UUID
from offsetstream.codec.serde import JsonObject
from offsetstream.errors import IllegalStateError


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A commit. Epoch, expiry (ms) and topic id are None if there is none; times are ms since 1970.

    `record_offset` orders commits (see `older_than`). It is the offset of the commit's record in the offsets partition;
    in the classic coordinator that of the first record in its batch. It is None until the commit is appended.
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
        """Whether the other commit's record comes later in the log. Both commits must have been appended."""
        if self.record_offset is None or other.record_offset is None:
            raise IllegalStateError("a commit that was not appended has no offset in the log")
        return self.record_offset < other.record_offset

    def is_expired(self, base_ms: int, now_ms: int, retention_ms: int) -> bool:
        """Whether it is expired: at its expiry time it is (OffsetExpirationConditionImpl).

        Only a commit whose client asked for it has an expiry of its own. For others, the retention starts at `base_ms`.
        """
        return now_ms >= (base_ms + retention_ms if self.expire_timestamp_ms is None else self.expire_timestamp_ms)


ExpirationBase: TypeAlias = Callable[[OffsetAndMetadata], int]
"""From a commit to the time from which its retention counts: its commit, or when its group became Empty."""


def since_commit(commit: OffsetAndMetadata) -> int:
    """Return the commit's time. It is the base for all groups but Empty ones that once had members."""
    return commit.commit_timestamp_ms


def offset_from_value(value: JsonObject, record_offset: int) -> OffsetAndMetadata:
    """Build a commit from an OffsetCommitValue. -1 and the zero topic id mean none (reference 4.6)."""
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
    """The offsets of one group: committed, in flight, and pending in open transactions (by producer id)."""

    committed: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    in_flight: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    pending: dict[int, dict[TopicPartition, OffsetAndMetadata]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether the group has no offsets of any kind (the opposite of Kafka's hasOffsets)."""
        return not (self.committed or self.in_flight or self.pending)

    def has_pending_transaction(self, partition: TopicPartition) -> bool:
        """Whether an open transaction has a commit for the partition."""
        return any(partition in commits for commits in self.pending.values())

    def has_pending(self, partition: TopicPartition) -> bool:
        """Whether a commit for the partition is in flight or in an open transaction: its offset is not stable."""
        return partition in self.in_flight or self.has_pending_transaction(partition)

    def put_if_newer(self, partition: TopicPartition, commit: OffsetAndMetadata) -> None:
        """Store the commit unless the current one has a later record (Kafka's olderThan)."""
        present = self.committed.get(partition)
        if present is None or present.older_than(commit):
            self.committed[partition] = commit


class OffsetsStore:
    """The offsets of all groups in one offsets partition, and the groups with open transactions, by producer id."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupOffsets] = {}
        self.open_groups_for_producer: dict[int, set[str]] = {}

    def for_group(self, group_id: str) -> GroupOffsets:
        """Return the offsets of a group, empty if it has none yet."""
        return self.groups.setdefault(group_id, GroupOffsets())

    def open_transaction(self, producer_id: int, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a producer's pending commits in a group. Opens its transaction if it has none."""
        self.open_groups_for_producer.setdefault(producer_id, set()).add(group_id)
        return self.for_group(group_id).pending.setdefault(producer_id, {})

    def close_if_empty(self, producer_id: int, group_id: str) -> None:
        """Forget a producer's transaction in a group if it has no commits left."""
        offsets = self.groups.get(group_id)
        if offsets is not None and not offsets.pending.get(producer_id):
            offsets.pending.pop(producer_id, None)
            self._forget(producer_id, group_id)

    def complete_transaction(self, producer_id: int, *, is_commit: bool) -> set[str]:
        """End a producer's transaction (completePendingTxnOffsetCommit). Return the groups that it had commits in.

        A commit makes each pending offset visible unless a later record has replaced it. If a pending commit was never
        appended, raises IllegalStateError before anything is changed.
        """
        groups = self.open_groups_for_producer.get(producer_id, set())
        pending = {group_id: self.for_group(group_id).pending.get(producer_id, {}) for group_id in groups}
        if is_commit and any(c.record_offset is None for commits in pending.values() for c in commits.values()):
            raise IllegalStateError(f"a transaction of producer {producer_id} ends before its commits are appended")
        for group_id, commits in pending.items():
            offsets = self.for_group(group_id)
            offsets.pending.pop(producer_id, None)
            if is_commit:
                for partition, commit in commits.items():
                    offsets.put_if_newer(partition, commit)
        return self.open_groups_for_producer.pop(producer_id, set())

    def remove_everywhere(self, group_id: str, partition: TopicPartition) -> None:
        """Remove a committed offset and all pending commits for it (the new coordinator's tombstone)."""
        offsets = self.for_group(group_id)
        offsets.committed.pop(partition, None)
        for producer_id in list(offsets.pending):
            offsets.pending[producer_id].pop(partition, None)
            self.close_if_empty(producer_id, group_id)

    def forget_groups(self, group_ids: Iterable[str]) -> None:
        """Forget the offsets of groups, and their producers' transactions."""
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
