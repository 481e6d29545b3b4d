"""What a consumer with `isolation.level=read_committed` reads from a log (KIP-98)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from offsetstream.codec.batches import ControlType, Header, RecordBatch, control_type
from offsetstream.codec.log_segments import Skip


@dataclass(frozen=True)
class Transactions:
    """The transactions of a log: where the first open one starts, and which were aborted."""

    first_open_offset: int | None = None
    """The first offset of the earliest transaction that is still open; None if none is."""
    aborted: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By producer id: first offset and marker offset of each aborted transaction, in log order."""
    unknown: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By producer id: first offset and end of the records whose transaction's marker may be in a skipped part."""

    def committed(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """Yield the data batches before the first open transaction, without those of aborted transactions."""
        for batch in batches:
            if self.first_open_offset is not None and batch.base_offset >= self.first_open_offset:
                return
            if self.counts(batch):
                yield batch

    def counts(self, batch: RecordBatch | Header) -> bool:
        """Return whether a batch has records that are not aborted; those of an open transaction are not checked."""
        return not batch.is_control and not _is_in(self.aborted, batch) and not _is_in(self.unknown, batch)

    def known(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """Yield the batches without those whose transaction's end is unknown."""
        return (batch for batch in batches if batch.is_control or not _is_in(self.unknown, batch))


def _is_in(ranges_by_producer: dict[int, list[tuple[int, int]]], batch: RecordBatch | Header) -> bool:
    ranges = ranges_by_producer.get(batch.producer_id, [])
    after = bisect_right(ranges, batch.base_offset, key=lambda each: each[0])
    return batch.is_transactional and after > 0 and batch.base_offset < ranges[after - 1][1]


class _Doubts:
    """The transactions whose markers may be in skipped parts of the log.

    The next marker after a skipped batch ends the transaction, unless that batch was a marker and another transaction
    of the producer started after it. So the records before it are in doubt once the producer writes again, or if no
    marker follows. Within more than one skipped batch, another transaction may even have started.
    """

    def __init__(self, skips: Sequence[Skip], opened: dict[int, int]) -> None:
        self.unknown: dict[int, list[tuple[int, int]]] = {}
        self._skips, self._opened, self._seen = skips, opened, 0
        self._suspect: dict[int, int] = {}  # by producer: the first offset that may be missing

    def skip(self) -> None:
        """Note what was skipped since the batch before."""
        for skipped in self._skips[self._seen :]:
            for producer in list(self._opened):
                is_second = producer in self._suspect
                self._suspect.setdefault(producer, skipped.first_offset or 0)
                if is_second or not skipped.is_one_batch:
                    self.give_up(producer)
        self._seen = len(self._skips)

    def give_up(self, producer: int) -> None:
        """Take the records of the producer's open transaction before the skipped part as unknown, if there is one."""
        if producer in self._suspect:
            part = (self._opened.pop(producer), self._suspect.pop(producer))
            self.unknown.setdefault(producer, []).append(part)

    def end(self, producer: int) -> None:
        """Note that a marker has ended the producer's transaction."""
        self._suspect.pop(producer, None)

    def give_up_all(self) -> None:
        """Take what is open at the end of the log as unknown, where a part was skipped since."""
        self.skip()
        for producer in list(self._suspect):
            self.give_up(producer)


def find_transactions(batches: Iterable[RecordBatch], skips: Sequence[Skip] = ()) -> Transactions:
    """Find the transactions of a complete log. Its non-transactional batches may be missing.

    `skips` grows before a batch if a part of the log before it could not be read.
    """
    opened: dict[int, int] = {}
    aborted: dict[int, list[tuple[int, int]]] = {}
    doubts = _Doubts(skips, opened)
    for batch in batches:
        doubts.skip()
        if batch.is_transactional and not batch.is_control:
            doubts.give_up(batch.producer_id)
            opened.setdefault(batch.producer_id, batch.base_offset)
        ended = {control_type(record) for record in batch.records} if batch.is_control else set()
        if ended & set(ControlType) and batch.producer_id in opened:
            first = opened.pop(batch.producer_id)
            doubts.end(batch.producer_id)
            if ControlType.ABORT in ended:
                aborted.setdefault(batch.producer_id, []).append((first, batch.base_offset))
    doubts.give_up_all()
    return Transactions(min(opened.values(), default=None), aborted, doubts.unknown)
