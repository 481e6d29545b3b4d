"""Replay an offsets partition from its log into groups and offsets, as either coordinator does (reference 4, 5)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Literal, TypeAlias, TypeVar

from offsetstream.codec.batches import NO_PRODUCER, ControlType, LogRecord, RecordBatch, control_type
from offsetstream.codec.records import decode_key, decode_value
from offsetstream.codec.serde import JsonObject
from offsetstream.codec.wire import DecodeError
from offsetstream.coordinator.replay.classic_group import ClassicGroup, GroupState, classic_group_from_value
from offsetstream.coordinator.replay.modern_groups import ConsumerGroup, ShareGroup, StreamsGroup
from offsetstream.coordinator.replay.offsets import OffsetsStore, TopicPartition, offset_from_value
from offsetstream.coordinator.replay.release_rules import MAX_ARRAY_ELEMENTS, Rule, Rules
from offsetstream.errors import IllegalStateError, ReplayError

Group: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup
OnBadRecord: TypeAlias = Literal["fail", "skip"]

_CLASSIC_TYPES = frozenset({0, 1, 2})
_STREAMS_TYPES = frozenset({17, 19, 20, 21, 22, 23})


@dataclass(slots=True)
class ReplaySummary:
    """What was replayed: the number of records and bytes, and the load buffer that the largest batch needed, in bytes.

    `skipped` has the offset of each skipped record, with the reason.
    """

    records: int
    size: int
    buffer_size: int
    skipped: dict[int, str]


class PartitionReplay(ABC):
    """The groups and offsets of one offsets partition, as its coordinator has them in memory."""

    known_types: frozenset[int]
    rules: Rules = frozenset()
    groups: dict[str, Group]
    offsets: OffsetsStore

    def replay(self, batches: Iterable[RecordBatch], on_bad_record: OnBadRecord, buffer_size: int) -> ReplaySummary:
        """Replay batches in log order. A batch of any size is accepted: the buffer grows, as in a broker.

        Raises ReplayError at a record where a broker's load fails, unless `on_bad_record` is `skip`.
        """
        summary = ReplaySummary(0, 0, buffer_size, {})
        for batch in batches:
            summary.size += batch.size
            summary.records += len(batch.records)
            summary.buffer_size = max(summary.buffer_size, batch.size)
            if batch.is_control:
                self.replay_control_batch(batch)
                continue
            for record in batch.records:
                self._replay(batch, record, summary.skipped if on_bad_record == "skip" else None)
        return summary

    def _replay(self, batch: RecordBatch, record: LogRecord, skipped: dict[int, str] | None) -> None:
        try:
            decoded = _decode_record(record, self.known_types, self.rules)
            if decoded is not None:
                self.replay_record(decoded, batch)
        except (DecodeError, ReplayError) as reason:
            if skipped is None:
                raise ReplayError(f"record at offset {record.offset}: {reason}") from None
            skipped[record.offset] = str(reason)

    @abstractmethod
    def replay_control_batch(self, batch: RecordBatch) -> None:
        """Replay a batch of transaction markers."""

    @abstractmethod
    def replay_record(self, record: DecodedRecord, batch: RecordBatch) -> None:
        """Replay one record of a data batch."""

    @abstractmethod
    def publish(self, now_ms: int) -> str | None:
        """Make the replayed records visible. Return what a broker then logs as an error, if anything."""

    @abstractmethod
    def add(self, group: Group) -> None:
        """Add a group. There must be no group with this id."""

    @abstractmethod
    def remove(self, group_id: str) -> None:
        """Remove a group and its offsets."""


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """One record: its key type, the data of key and value (None for a tombstone), offset, and timestamp in ms."""

    key_type: int
    key: JsonObject
    version: int
    value: JsonObject | None
    offset: int
    timestamp_ms: int | None

    @property
    def group_id(self) -> str:
        """The group id in the key."""
        name: str = self.key["group"] if "group" in self.key else self.key["groupId"]
        return name


def _decode_record(record: LogRecord, known_types: frozenset[int], rules: Rules) -> DecodedRecord | None:
    """Decode a record. None for a key type that the coordinator does not know, and so ignores (reference 4.5, 5.4).

    Raises DecodeError for a null or damaged key, a damaged value, or a value version out of range. It accepts more than
    any single release does: values of version 1-4 under key type 0 (4.1 and later reject them), and the layouts of 3.7.
    """
    if record.key is None:
        raise DecodeError("null key")
    if len(record.key) >= 2:  # noqa: PLR2004 - the two bytes of the key type
        key_type = int.from_bytes(record.key[:2], "big", signed=True)
        if key_type not in known_types:
            return None
    key_type, key = decode_key(record.key)
    version, value = (-1, None) if record.value is None else decode_value(key_type, record.value)
    # Every element takes at least one byte, so a small value cannot exceed the limit.
    if Rule.LARGE_ARRAYS_ARE_REFUSED in rules and len(record.value or b"") > MAX_ARRAY_ELEMENTS:
        _refuse_large_arrays(value)
    return DecodedRecord(key_type, key, version, value, record.offset, record.timestamp_ms)


def _refuse_large_arrays(cell: Any) -> None:
    if isinstance(cell, list) and len(cell) > MAX_ARRAY_ELEMENTS:
        raise DecodeError(
            f"an array has {len(cell)} elements; brokers from 4.4.0 on accept at most {MAX_ARRAY_ELEMENTS}"
        )
    for inner in cell.values() if isinstance(cell, dict) else cell if isinstance(cell, list) else ():
        _refuse_large_arrays(inner)


class ClassicLoad(PartitionReplay):
    """The groups and offsets that the scan has found, and which of the groups are published.

    `cached` has, for every group in the broker's cache, the load that published it; the first one stays. A scan may
    continue after it was published. Publish again to make visible what it then finds.
    """

    known_types = _CLASSIC_TYPES

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


Modern = TypeVar("Modern", ConsumerGroup, ShareGroup, StreamsGroup)
_Replay: TypeAlias = Callable[["NewReplay", "DecodedRecord"], None]


class NewReplay(PartitionReplay):
    """The state that the Java coordinator's GroupMetadataManager and OffsetMetadataManager have of one partition.

    `rules` are the rules of its release.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.known_types = frozenset({0, 1, *_REPLAYS})
        if Rule.STREAMS_RECORDS_ARE_KNOWN not in rules:
            self.known_types -= _STREAMS_TYPES
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetsStore()

    def replay_control_batch(self, batch: RecordBatch) -> None:
        """End the producer's transaction at each COMMIT or ABORT. Other control records are ignored."""
        for record in batch.records:
            marker = control_type(record)
            if marker in (ControlType.COMMIT, ControlType.ABORT):
                self.offsets.complete_transaction(batch.producer_id, is_commit=marker == ControlType.COMMIT)

    def replay_record(self, record: DecodedRecord, batch: RecordBatch) -> None:
        """Replay one record. Raises IllegalStateError where a broker's load fails."""
        if record.key_type in (0, 1):
            self._replay_offset_commit(record, batch.producer_id)
        else:
            _REPLAYS[record.key_type](self, record)

    def publish(self, now_ms: int) -> str | None:  # noqa: ARG002 - nothing waits for publication
        """Do nothing: replayed records are visible at once."""
        return None

    def add(self, group: Group) -> None:
        """Add a group. There must be no group with this id."""
        self.groups[group.group_id] = group

    def remove(self, group_id: str) -> None:
        """Remove a group and its offsets."""
        self.groups.pop(group_id, None)
        self.offsets.forget_groups([group_id])

    def _replay_offset_commit(self, record: DecodedRecord, producer_id: int) -> None:
        partition = TopicPartition(record.key["topic"], record.key["partition"])
        if record.value is None:
            self.offsets.remove_everywhere(record.group_id, partition)
            return
        if record.group_id not in self.groups:
            self.groups[record.group_id] = ClassicGroup(record.group_id)
        commit = offset_from_value(record.value, record.offset)
        if producer_id == NO_PRODUCER:
            self.offsets.for_group(record.group_id).committed[partition] = commit
        else:
            self.offsets.open_transaction(producer_id, record.group_id)[partition] = commit

    def _replay_group_metadata(self, record: DecodedRecord) -> None:
        # This replaces or removes a group of any type with this id; its offsets stay (reference 5.5).
        if record.value is None:
            self.groups.pop(record.group_id, None)
        else:
            self.groups[record.group_id] = classic_group_from_value(record.group_id, record.version, record.value)

    def persisted_group(self, kind: type[Modern], group_id: str, *, create: bool) -> Modern | None:
        """Return the group (getOrMaybeCreatePersisted…Group); None if there is none and `create` is false.

        A consumer or streams group replaces a simple classic group, which exists for its offsets or from a first
        JoinGroup. This also happens at a tombstone. By a proposed rule, a consumer group replaces any other classic
        group too, but a tombstone leaves that one as it is. Raises IllegalStateError if a group of another type has the
        id.
        """
        present = self.groups.get(group_id)
        if isinstance(present, kind):
            return present
        is_simple = isinstance(present, ClassicGroup) and present.is_simple
        is_replaced = isinstance(present, ClassicGroup) and self._is_replaced(present, kind)
        if not create and (present is None or (is_replaced and not is_simple)):
            return None
        if present is not None and not is_replaced:
            raise IllegalStateError(
                f"group {group_id!r} is a {present.type_name} group, but the record is of a {kind.type_name} group"
            )
        group = kind(group_id)
        if isinstance(group, ConsumerGroup):
            group.partitions_are_taken_over = Rule.PARTITIONS_ARE_TAKEN_OVER in self.rules
        self.groups[group_id] = group
        return group

    def _is_replaced(self, present: ClassicGroup, kind: type[Modern]) -> bool:
        if kind is ConsumerGroup:
            return present.is_simple or Rule.CONSUMER_GROUP_REPLACES_CLASSIC in self.rules
        return kind is StreamsGroup and present.is_simple and Rule.STREAMS_GROUP_REPLACES_SIMPLE in self.rules


def _into_group(kind: type[Modern], replay: Callable[[Modern, DecodedRecord], None]) -> _Replay:
    def replay_record(shard: NewReplay, record: DecodedRecord) -> None:
        group = shard.persisted_group(kind, record.group_id, create=record.value is not None)
        if group is not None:
            replay(group, record)

    return replay_record


def _group_record(kind: type[Modern]) -> _Replay:
    def replay_record(shard: NewReplay, record: DecodedRecord) -> None:
        group = shard.persisted_group(kind, record.group_id, create=record.value is not None)
        if group is None:
            return
        if record.value is not None:
            group.replay_metadata(record.value)
        else:
            group.require_deletable()
            del shard.groups[record.group_id]

    return replay_record


def _common(kind: type[Modern], metadata: int, member: int, target_epoch: int, target: int) -> dict[int, _Replay]:
    return {
        metadata: _group_record(kind),
        member: _into_group(kind, lambda group, r: group.replay_member(r.key["memberId"], r.value)),
        target_epoch: _into_group(kind, lambda group, r: group.replay_target_epoch(r.value)),
        target: _into_group(kind, lambda group, r: group.replay_target(r.key["memberId"], r.value)),
        target + 1: _into_group(kind, lambda group, r: group.replay_current(r.key["memberId"], r.value)),
    }


# Brokers from 4.1 on do not know type 9 (reference 1.1).
_REPLAYS: dict[int, _Replay] = {
    2: NewReplay._replay_group_metadata,
    **_common(ConsumerGroup, metadata=3, member=5, target_epoch=6, target=7),
    4: _into_group(ConsumerGroup, lambda group, r: group.replay_partition_metadata(r.value)),
    16: _into_group(
        ConsumerGroup, lambda group, r: group.replay_regular_expression(r.key["regularExpression"], r.value)
    ),
    **_common(ShareGroup, metadata=11, member=10, target_epoch=12, target=13),
    15: _into_group(ShareGroup, lambda *_: None),  # for which partitions the share state was initialized
    **_common(StreamsGroup, metadata=17, member=19, target_epoch=20, target=21),
    23: _into_group(StreamsGroup, lambda group, r: group.replay_topology(r.value)),
}


def cut_log(
    batches: Iterable[RecordBatch], end_offset: int | None = None, end_ms: int | None = None
) -> Iterator[RecordBatch]:
    """Yield a partition's batches up to `end_offset`, or to the first record with timestamp `end_ms` or later.

    Both ends are exclusive. A batch that crosses an end keeps the records before it. As in Kafka's own search by time,
    the records after the end are ignored, even if another broker's clock gave them an earlier timestamp.
    """

    def is_before(record: LogRecord) -> bool:
        is_early = end_ms is None or record.timestamp_ms is None or record.timestamp_ms < end_ms
        return is_early and (end_offset is None or record.offset < end_offset)

    if end_offset is None and end_ms is None:
        yield from batches
        return
    for batch in batches:
        kept = tuple(takewhile(is_before, batch.records))
        if len(kept) < len(batch.records):
            if kept:
                yield replace(batch, records=kept)
            return
        yield batch
