"""What a consumer with `isolation.level=read_committed` sees of a log (KIP-98)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from offsetstream.codec.record_batches import ControlType, RecordBatch, control_type


@dataclass(frozen=True)
class Transactions:
    """The transactions of a log: which is open, and which were aborted."""

    first_open_offset: int | None = None
    """Where the first transaction begins that is still open."""
    aborted: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By producer id, from the first offset of a transaction to its marker, in the order of the log."""

    def committed(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """Yield the log's data batches but for those of open and aborted transactions, and all beyond open ones."""
        for batch in batches:
            if self.first_open_offset is not None and batch.base_offset >= self.first_open_offset:
                return
            if not batch.is_control and not (batch.is_transactional and self._is_aborted(batch)):
                yield batch

    def _is_aborted(self, batch: RecordBatch) -> bool:
        ranges = self.aborted.get(batch.producer_id, [])
        after = bisect_right(ranges, batch.base_offset, key=lambda each: each[0])
        return after > 0 and batch.base_offset < ranges[after - 1][1]


def find_transactions(batches: Iterable[RecordBatch]) -> Transactions:
    """Follow the transactions of a whole log; its batches that are not transactional may be left out."""
    opened: dict[int, int] = {}
    aborted: dict[int, list[tuple[int, int]]] = {}
    for batch in batches:
        if batch.is_transactional and not batch.is_control:
            opened.setdefault(batch.producer_id, batch.base_offset)
        ended = {control_type(record) for record in batch.records} if batch.is_control else set()
        if ended & set(ControlType) and batch.producer_id in opened:
            first = opened.pop(batch.producer_id)
            if ControlType.ABORT in ended:
                aborted.setdefault(batch.producer_id, []).append((first, batch.base_offset))
    return Transactions(min(opened.values(), default=None), aborted)
