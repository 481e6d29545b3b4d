"""The part of a replay that both coordinators have in common: batches, bad records, counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from offsetstream.codec.batches import LogRecord, RecordBatch
from offsetstream.codec.wire import DecodeError
from offsetstream.coordinator.replay.classic_group import ClassicGroup
from offsetstream.coordinator.replay.consumer_group import ConsumerGroup
from offsetstream.coordinator.replay.decoded import DecodedRecord, decode_record
from offsetstream.coordinator.replay.offsets import OffsetsStore
from offsetstream.coordinator.replay.release_rules import Rules
from offsetstream.coordinator.replay.share_group import ShareGroup
from offsetstream.coordinator.replay.streams_group import StreamsGroup
from offsetstream.errors import ReplayError

Group: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup
OnBadRecord: TypeAlias = Literal["fail", "skip"]


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
            decoded = decode_record(record, self.known_types, self.rules)
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
