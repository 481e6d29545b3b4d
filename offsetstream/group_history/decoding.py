"""What the records of groups make of the decoded history: the driver and Spark tasks run the same functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

import pyarrow as pa

from offsetstream.coordinator.cells import Cell
from offsetstream.coordinator.group_changes import CellKey, Changes, GroupRecord, GroupTimeline, changes_by_step
from offsetstream.group_history.spans import Decoding, Span, Spans
from offsetstream.tables.derived import cell_of
from offsetstream.tables.names import DECODED_TABLES
from offsetstream.tables.plain_rows import Rows
from offsetstream.tables.row_pieces import in_pieces, to_python
from offsetstream.tables.schema import load_schema

# The columns of a row, and the order of rows: the state before a span, then its records, then the state at its end.
ORDER = ("offsets_partition", "log_id", "group_id", "is_final", "record_offset")
COLUMNS = (*ORDER, "key_type", "key_json", "value_version", "value_json", "record_timestamp")
_Row = Mapping[str, Any]


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
    for (is_final, is_within), part in groupby(rows, lambda row: (row["is_final"], row["record_offset"] >= span.start)):
        records = map(_record, part)
        if is_final:  # of the span, or older
            final |= {record.key: record.cell for record in records if record.cell is not None}
        elif is_within:
            yield from changes_by_step(records, timeline, span.steps_end_at)
        else:
            for record in records:
                timeline.put(record)
            timeline.changes(span.start - 1, None)  # these changes were written before
    if span.is_closed:
        timeline.become(final)
        yield timeline.changes(span.end - 1, span.closed_at_ms)


def _record(row: _Row) -> GroupRecord:
    at = row["record_timestamp"]
    return GroupRecord(
        key=(row["key_type"], row["key_json"]),
        cell=None if row["value_json"] is None else cell_of(row),
        record_offset=row["record_offset"],
        record_timestamp_ms=None if at is None else round(at.timestamp() * 1000),
    )
