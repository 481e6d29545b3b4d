"""What both coordinators do alike when they replay a partition: batches, bad records, counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from offsetstream.codec.record_batches import LogRecord, RecordBatch
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
    """What was replayed: the number of records and their bytes, the load buffer that the largest batch took.

    `skipped` are the records that were left aside, by offset, with the reason.
    """

    records: int
    size: int
    buffer_size: int
    skipped: dict[int, str]


class PartitionReplay(ABC):
    """One offsets partition in the memory of its coordinator."""

    known_types: frozenset[int]
    rules: Rules = frozenset()
    groups: dict[str, Group]
    offsets: OffsetsStore

    def replay(self, batches: Iterable[RecordBatch], on_bad_record: OnBadRecord, buffer_size: int) -> ReplaySummary:
        """Replay batches in the order of the log, whatever their size: the buffer grows as a broker's does.

        Raises ReplayError at a record at which a broker's load fails, unless such records are to be skipped.
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
        """Make visible what was replayed; return what a broker logs as an error then, if anything."""

    @abstractmethod
    def add(self, group: Group) -> None:
        """Hold a group; no group of its id is held."""

    @abstractmethod
    def remove(self, group_id: str) -> None:
        """Forget a group and its offsets."""
