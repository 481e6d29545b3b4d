"""What the records of groups make of the decoded history: the driver and Spark tasks run the same functions.

A span of offsets of each log is decoded. A step is the records of one group that the coordinator appended together; the
end of a batch may cut it, so its records wait until the rest is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetstream.coordinator.group_changes import CellKey, Changes, GroupRecord, GroupTimeline, changes_by_step
from offsetstream.coordinator.rows import Cell
from offsetstream.tables.names import DECODED_TABLES, RECORDS
from offsetstream.tables.rows import Rows, cell_of, in_pieces, to_python
from offsetstream.tables.schema import load_schema
from offsetstream.tables.tally import LOG, Log
from offsetstream.tables.transaction import BatchId

if TYPE_CHECKING:
    from offsetstream.tables.store import Store

# The columns of a row, and the order of rows: the state before a span, then its records, then the state at its end.
ORDER = ("offsets_partition", "log_id", "group_id", "is_final", "record_offset")
COLUMNS = (*ORDER, "key_type", "key_json", "value_json", "record_timestamp")
# Conditions of `within`.
IN_SPAN = "record_offset >= {start} AND record_offset < {end}"
BEFORE_SPAN = "record_offset < {start}"
UP_TO_END = "record_offset < {end}"
# The most records of one append: a batch of Kafka has up to 1 MiB (max.message.bytes), a record at least 60 bytes.
_LONGEST = 20_000
_STEP_SCHEMA = pa.schema(
    [load_schema(RECORDS).arrow.field(name) for name in (*LOG, "record_offset", "record_timestamp", "group_id")]
)
_Row = Mapping[str, Any]


@dataclass(frozen=True)
class Span:
    """The offsets of a log from `start` to `end` (exclusive), of which the group records are decoded.

    - `is_stored`: whether the records, and the state before them, come from the history of records. Otherwise the state
      before comes from the state tables, or is empty.
    - `steps_end_at`: offsets at which a step ends, whatever follows.
    - `is_closed`: whether the state at the end is known. A group or member whose tombstone was compacted then ends at
      `closed_at_ms`: the time of the log's newest record, in milliseconds since 1970.
    """

    start: int
    end: int
    is_stored: bool = True
    steps_end_at: frozenset[int] = frozenset()
    is_closed: bool = False
    closed_at_ms: int | None = None


Spans = Mapping[Log, Span]


def spans_where(spans: Spans, *, is_stored: bool) -> Spans:
    """Return the spans with this `is_stored`."""
    return {log: span for log, span in spans.items() if span.is_stored is is_stored}


@dataclass(frozen=True)
class Decoding:
    """What to decode, and the batch or load under which it is appended.

    `written`: by table and offsets partition, the offset up to which nothing is appended.
    """

    spans: Spans
    written: Mapping[str, Mapping[int, int]]
    batch: BatchId

    def of(self, *, is_stored: bool) -> Spans:
        """Return the spans with this `is_stored`."""
        return spans_where(self.spans, is_stored=is_stored)


def within(spans: Spans, offsets: str) -> str:
    """Return the SQL condition for rows of these logs. `offsets`: a condition with {start} and {end}."""
    conditions = (
        f"(offsets_partition = {partition} AND log_id = {log_id} AND {offsets.format(start=span.start, end=span.end)})"
        for (partition, log_id), span in spans.items()
    )
    return " OR ".join(conditions) or "false"


def changes_of(
    rows: Iterable[pa.RecordBatch], decoding: Decoding, topic_names: Mapping[str, str]
) -> Iterator[dict[str, pa.Table]]:
    """Return the changes in whole groups as rows of the `DECODED_TABLES`, in pieces; see `decoded_changes`."""
    plain = (row for batch in rows for row in to_python(pa.Table.from_batches([batch])))
    found = decoded_changes(plain, decoding.spans, topic_names, decoding.written)
    return in_pieces(found, [load_schema(name).unsigned for name in DECODED_TABLES])


def decoded_changes(
    rows: Iterable[_Row], spans: Spans, topic_names: Mapping[str, str], written: Mapping[str, Mapping[int, int]]
) -> Iterator[dict[str, Rows]]:
    """Yield the rows of the `DECODED_TABLES`, step by step, without the columns of the writer.

    `rows` have `COLUMNS`, in `ORDER`; a null value is a tombstone. Rows below the start of a span are the state before
    it. Rows with `is_final` are the state at the end of a closed span. `written`: by table and offsets partition, the
    offset up to which no rows are yielded.
    """
    for key, group_rows in groupby(rows, _group):
        partition, log_id, group_id = key
        timeline = GroupTimeline(group_id, topic_names)
        place = {"offsets_partition": partition, "log_id": log_id, "group_id": group_id}
        for changes in _changes_of_group(group_rows, spans[partition, log_id], timeline):
            changes.place(place)
            by_table = dict[str, Rows](
                zip(DECODED_TABLES, (changes.groups, changes.members, changes.assignments), strict=True)
            )
            new = {table for table in DECODED_TABLES if changes.record_offset > written[table].get(partition, -1)}
            if any(by_table[table] for table in new):
                yield {table: rows if table in new else [] for table, rows in by_table.items()}


def _group(row: _Row) -> tuple[int, int, str]:
    return row["offsets_partition"], row["log_id"], row["group_id"]


def _changes_of_group(rows: Iterable[_Row], span: Span, timeline: GroupTimeline) -> Iterator[Changes]:
    final: dict[CellKey, Cell] = {}
    closes_at, closed_at_ms = span.end - 1 if span.is_closed else None, span.closed_at_ms
    for (is_final, is_within), part in groupby(rows, lambda row: (row["is_final"], row["record_offset"] >= span.start)):
        records = map(_record, part)
        if is_final:  # of the span, or older
            final |= {record.key: record.cell for record in records if record.cell is not None}
        elif is_within:
            # The state at the end belongs to a step that ends there: of two rows of one offset none would be the last.
            closing = yield from changes_by_step(records, timeline, span.steps_end_at, closes_at)
            closed_at_ms = closed_at_ms if closing is None else closing.record_timestamp_ms
        else:
            for record in records:
                timeline.put(record)
            timeline.changes(span.start - 1, None)  # these changes were written before
    if span.is_closed:
        timeline.become(final)
        yield timeline.changes(span.end - 1, closed_at_ms)


def _record(row: _Row) -> GroupRecord:
    at = row["record_timestamp"]
    return GroupRecord(
        key=(row["key_type"], row["key_json"]),
        cell=None if row["value_json"] is None else cell_of(row),
        record_offset=row["record_offset"],
        record_timestamp_ms=None if at is None else round(at.timestamp() * 1000),
    )


def stored_tails(tables: Store, spans: Spans) -> pa.Table:
    """Return the last records of each span from the history of records: as many as a step can have."""
    if not spans:
        return _STEP_SCHEMA.empty_table()
    tails = {log: replace(span, start=max(span.start, span.end - _LONGEST)) for log, span in spans.items()}
    query = f"SELECT {', '.join(_STEP_SCHEMA.names)} FROM rows WHERE {within(tails, IN_SPAN)}"  # noqa: S608 - our own SQL
    return tables.open(RECORDS).query(query).read_all()


def until_complete_steps(spans: Spans, *records: pa.Table) -> dict[Log, Span]:
    """Return the spans without their last step, if that step reaches the end of the span.

    `records`: together, the group records of the spans in any order, or only the last of them.
    """
    last_steps = _last_steps(pa.concat_tables([rows.select(_STEP_SCHEMA.names).cast(_STEP_SCHEMA) for rows in records]))
    return {log: replace(span, end=_end_of_complete_steps(span, last_steps.get(log))) for log, span in spans.items()}


def _end_of_complete_steps(span: Span, last_step: tuple[int, int] | None) -> int:
    return span.end if last_step is None or last_step[1] != span.end - 1 else last_step[0]


def _last_steps(records: pa.Table) -> dict[Log, tuple[int, int]]:
    """Return the first and the last offset of the last step of each log: adjacent records of one group and one time."""
    if not records.num_rows:
        return {}
    rows = records.sort_by([(name, "ascending") for name in (*LOG, "record_offset")])
    partitions, logs, offsets = (rows[name].to_numpy() for name in (*LOG, "record_offset"))
    starts_log = _differs(partitions) | _differs(logs)
    groups = rows["group_id"].combine_chunks().dictionary_encode().indices
    equal = [values.cast(pa.int64()).fill_null(-1).to_numpy() for values in (rows["record_timestamp"], groups)]
    starts_step = np.logical_or.reduce([starts_log, np.diff(offsets, prepend=offsets[0]) != 1, *map(_differs, equal)])
    first = offsets[np.maximum.accumulate(np.where(starts_step, np.arange(len(starts_step)), 0))]
    ends = np.append(starts_log[1:], True)
    return {
        (partition, log): (start, end)
        for partition, log, start, end in zip(
            *(values[ends].tolist() for values in (partitions, logs, first, offsets)), strict=True
        )
    }


def _differs(values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return for each value whether it differs from the one before."""
    return np.append([True], values[1:] != values[:-1])
