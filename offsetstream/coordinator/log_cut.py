"""A log up to an offset or a time: any such cut is a state that a coordinator has had."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import takewhile

from offsetstream.codec.record_batches import LogRecord, RecordBatch


def until(
    batches: Iterable[RecordBatch], end_offset: int | None = None, end_ms: int | None = None
) -> Iterator[RecordBatch]:
    """Yield a partition's batches up to `end_offset`, or the first record whose timestamp is `end_ms` or later.

    Both ends are exclusive; a batch across one keeps the records before it. As in Kafka's own search by time, what
    follows is not looked at, though its timestamps, those of another broker's clock, may be earlier.
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
