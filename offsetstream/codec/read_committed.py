"""What a consumer with `isolation.level=read_committed` reads from a log (KIP-98)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from offsetstream.codec.record_batches import ControlType, RecordBatch, control_type


@dataclass(frozen=True)
class Transactions:
    """The transactions of a log: where the first open one starts, and which were aborted."""

    first_open_offset: int | None = None
    """The first offset of the earliest transaction that is still open; None if none is."""
    aborted: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By producer id: first offset and marker offset of each aborted transaction, in log order."""

    def committed(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """Yield the data batches before the first open transaction, without those of aborted transactions."""
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
    """Find the transactions of a complete log. Its non-transactional batches may be missing."""
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
