"""Print log segments as lines of text, in the same formats as a dump from a cluster. Needs no Spark and no broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import BinaryIO

import pyarrow as pa

from offsetstream.codec.batches import NO_PRODUCER, NO_TIMESTAMP, ControlType, LogRecord, RecordBatch, control_type
from offsetstream.codec.damaged_segments import find_surviving, read_undamaged
from offsetstream.codec.log_segments import LogPartition, Report, Skip, find_transactions, read_segments
from offsetstream.codec.records import jackson
from offsetstream.dump.formats import RAW_SCHEMA, UnprintableRecords, escaped_text, first_unprintable, format_batch
from offsetstream.errors import SegmentError

_RECORDS_AT_ONCE, _BYTES_AT_ONCE = 32_768, 32 << 20
_SCHEMA = RAW_SCHEMA.append(pa.field("more", pa.string()))
_CONTROL_NAMES: dict[int | None, str | int | None] = {int(each): each.name for each in ControlType}

_Row = tuple[LogRecord, str]


def dump_segments(
    partitions: Iterable[LogPartition],
    line_format: str,
    target: BinaryIO,
    report: Report,
    on_skip: Callable[[Skip], None] | None = None,
) -> UnprintableRecords | None:
    """Write the records of each partition as lines. Return what the format cannot print, None if it can print all.

    `line_format` is one of LINE_FORMATS. `records` writes every record of the log, with control records. If a record's
    producer has an id, the line also has that id, whether the record is transactional, and a marker's type. The other
    formats write what a consumer with isolation.level=read_committed gets. `report` is called with a sentence if a log
    ends within a batch. Raises SegmentError, also at a damaged batch, unless `on_skip` is called with what is skipped.
    """
    unprintable: list[UnprintableRecords] = []
    for partition in partitions:
        if line_format == "records":
            rows: Iterator[_Row] = chain.from_iterable(map(_rows, _all_batches(partition, report, on_skip)))
        else:
            batches = _committed_batches(partition, report, on_skip)
            rows = ((record, "") for batch in batches for record in batch.records)
        for chunk in _chunks(rows):
            raw = _columns(partition.number, chunk)
            lines, broken = format_batch(raw, line_format)
            target.write(escaped_text(lines, line_format, on_terminal=target.isatty()))
            if broken:
                row = min(broken)
                unprintable.append(UnprintableRecords(len(broken), partition.number, chunk[row][0].offset, broken[row]))
    return first_unprintable(unprintable)


def _committed_batches(
    partition: LogPartition, report: Report, on_skip: Callable[[Skip], None] | None
) -> Iterator[RecordBatch]:
    if on_skip is not None:
        transactions, batches = find_surviving(partition, report, on_skip)
        return transactions.committed(batches)
    transactions = find_transactions(read_segments(partition.segments, report, transactions_only=True))
    return transactions.committed(read_segments(partition.segments, _silent))


def _all_batches(
    partition: LogPartition, report: Report, on_skip: Callable[[Skip], None] | None
) -> Iterator[RecordBatch]:
    if on_skip is not None:
        return read_undamaged(partition.segments, report, on_skip)
    return read_segments(partition.segments, report)


def _rows(batch: RecordBatch) -> Iterator[_Row]:
    if batch.producer_id == NO_PRODUCER and not batch.is_control:
        return ((record, "") for record in batch.records)
    producer = f',"producer_id":{batch.producer_id},"transactional":{jackson(batch.is_transactional)}'
    return ((record, producer + _control(batch, record)) for record in batch.records)


def _control(batch: RecordBatch, record: LogRecord) -> str:
    if not batch.is_control:
        return ""
    number = control_type(record)
    return f',"control_type":{jackson(_CONTROL_NAMES.get(number, number))}'


def _chunks(rows: Iterator[_Row]) -> Iterator[list[_Row]]:
    """Yield rows in lists of a size to format at once. Rows before a damaged batch come before its error."""
    chunk: list[_Row] = []
    size = 0
    try:
        for row in rows:
            chunk.append(row)
            size += len(row[0].key or b"") + len(row[0].value or b"")
            if len(chunk) == _RECORDS_AT_ONCE or size > _BYTES_AT_ONCE:
                yield chunk
                chunk, size = [], 0
    except SegmentError:
        yield chunk
        raise
    if chunk:
        yield chunk


def _columns(number: int | None, rows: Sequence[_Row]) -> pa.RecordBatch:
    records = [record for record, _ in rows]
    times = (NO_TIMESTAMP if record.timestamp_ms is None else record.timestamp_ms for record in records)
    cells = [
        *([number] * len(rows), [record.offset for record in records], list(times)),
        *([record.key for record in records], [record.value for record in records], [more for _, more in rows]),
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(cells, _SCHEMA, strict=True)], schema=_SCHEMA
    )


def _silent(note: str) -> None:
    """Ignore the note: the first reading has reported it. The second reading may end earlier."""
