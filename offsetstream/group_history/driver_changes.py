"""The decoded history by the driver: what it can hold, in tenths of the time of Spark jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa

from offsetstream.group_history.decoding import COLUMNS, ORDER, decoded_changes
from offsetstream.group_history.spans import BEFORE_SPAN, IN_SPAN, Spans, within
from offsetstream.tables.arrow_rows import from_rows, read_groups
from offsetstream.tables.derived import Rows
from offsetstream.tables.engines import Size
from offsetstream.tables.names import DECODED_TABLES, GROUP_CELLS, RECORDS
from offsetstream.tables.schema import HISTORY_DAY, ColumnSchema, TableSchema, load_schema
from offsetstream.tables.store import Store

_GROUP = ("offsets_partition", "group_id")
_STORED = tuple(name for name in COLUMNS if name != "is_final")
_SCHEMA = pa.schema(
    [pa.field(name, pa.bool_()) if name == "is_final" else load_schema(RECORDS).arrow.field(name) for name in COLUMNS]
)
_LAST = (
    "SELECT {columns} FROM (SELECT *, row_number() OVER (PARTITION BY offsets_partition, log_id, key_type, key_json "
    "ORDER BY record_offset DESC) AS nth FROM rows WHERE {where}) r WHERE nth = 1 AND NOT is_tombstone"
)
_AT_ONCE = 64  # records that are Python's at a time: each may be a megabyte of JSON
_ROWS = 10_000


def records_in(tables: Store, spans: Spans) -> pa.Table:
    """Return the group records of the spans that the history has."""
    return _read(tables, f"SELECT {', '.join(_STORED)} FROM rows WHERE {within(spans, IN_SPAN)}", spans)  # noqa: S608 - our own SQL


def cells_before(tables: Store, spans: Spans) -> pa.Table:
    """Return the last record of each cell before the spans, as the history has it."""
    return _read(tables, _LAST.format(columns=", ".join(_STORED), where=within(spans, BEFORE_SPAN)), spans)


def cells_of(tables: Store, groups: Collection[tuple[int, str]]) -> pa.Table:
    """Return the cells that the groups have in the state tables."""
    return with_finality(read_groups(tables, GROUP_CELLS, groups, _STORED), is_final=False)


def size_of(tables: Store, spans: Spans) -> Size:
    """Return how much the history of records has of the spans."""
    if not spans:
        return Size(0, 0)
    # A short value may be a long JSON.
    bytes_ = "coalesce(sum(octet_length(key_json) + coalesce(octet_length(value_json), 0)), 0)"
    query = f"SELECT count(*) AS n, {bytes_} AS b FROM rows WHERE {within(spans, IN_SPAN)}"  # noqa: S608 - our own SQL
    (row,) = tables.open(RECORDS).query(query).read_all().to_pylist()
    return Size(row["n"], row["b"])


def _read(tables: Store, query: str, spans: Spans) -> pa.Table:
    found = tables.open(RECORDS).query(query).read_all() if spans else _SCHEMA.empty_table().drop("is_final")
    return with_finality(found, is_final=False)


def with_finality(rows: pa.Table, *, is_final: bool) -> pa.Table:
    """Return rows of records or cells with `COLUMNS`; `is_final`: they are what is at the end of a span."""
    of_all = rows.append_column("is_final", pa.repeat(pa.scalar(is_final), rows.num_rows))
    return of_all.select(COLUMNS).cast(_SCHEMA)


def changes_on_driver(
    rows: pa.Table, spans: Spans, topic_names: Mapping[str, str], written: Mapping[str, Mapping[int, int]]
) -> dict[str, pa.Table]:
    """Return what `decoding.decoded_changes` makes of rows in any order, as rows of the `DECODED_TABLES`."""
    pieces = {name: [unsigned(name).arrow.empty_table()] for name in DECODED_TABLES}
    waiting: dict[str, Rows] = {name: [] for name in DECODED_TABLES}
    ordered = rows.sort_by([(name, "ascending") for name in ORDER])
    for found in decoded_changes(_as_python(ordered), spans, topic_names, written):
        for name, own in found.items():
            waiting[name] += own
        if sum(map(len, waiting.values())) >= _ROWS:
            _put_away(waiting, pieces)
    _put_away(waiting, pieces)
    tables = {name: pa.concat_tables(of_table) for name, of_table in pieces.items()}
    return {name: table.sort_by([(each, "ascending") for each in _LOG_ORDER]) for name, table in tables.items()}


_LOG_ORDER = ("offsets_partition", "log_id", "record_offset")


def unsigned(name: str) -> TableSchema:
    """Return the schema of a decoded table without the columns that say who wrote a row."""
    schema = load_schema(name)
    return TableSchema(
        name, schema.kind, schema.comment, schema.key, tuple(column for column in schema.columns if _is_ours(column))
    )


def _is_ours(column: ColumnSchema) -> bool:
    return column.name not in ("checkpoint_id", "batch_id", HISTORY_DAY)


def _as_python(rows: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in rows.to_batches(max_chunksize=_AT_ONCE):
        yield from batch.to_pylist()


def _put_away(waiting: dict[str, Rows], pieces: dict[str, list[pa.Table]]) -> None:
    for name, rows in waiting.items():
        pieces[name].append(from_rows(rows, unsigned(name)))
        rows.clear()
