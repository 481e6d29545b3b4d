"""Cut a log at an offset or a time. Every such cut is a state that a coordinator once had."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import takewhile

from offsetstream.codec.batches import LogRecord, RecordBatch


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
