"""Rows of the tables as Arrow tables: converted from the cells of groups, from plain rows and from raw records.

Plain rows have times as milliseconds since 1970, in `<name>_ms`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.codec.decoding import COMMIT_KEY_TYPES, decode_records
from offsetstream.coordinator.groups import derive_group
from offsetstream.coordinator.rows import PARTITION_COLUMNS, Assignments, Cell, Row
from offsetstream.tables.names import (
    COMMITS,
    COMMITTED_OFFSETS,
    DERIVED_TABLES,
    GROUP_CELLS,
    RECORD_TABLES,
    RECORDS,
    UNDECODABLE,
)
from offsetstream.tables.schema import DELETED, ColumnSchema, TableSchema

# Every engine that reads Delta supports these timestamps: the years 1 to 9999, in milliseconds since 1970.
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
# What the driver processes at once: all limits are here.
SMALL_ROWS = 1_200_000  # rows that remain of a log or batch after tasks have reduced them
MAX_SMALL_ROWS = 16_384  # rows of a batch that the reading Spark job returns to the driver at once
SMALL_BYTES = 128 << 20  # of keys, values and their JSON together
_UTC = pa.timestamp("us", "UTC")


def conform(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Return the rows with exactly the table's columns and types."""
    return rows.select(schema.column_names).cast(schema.arrow)


def timestamps(milliseconds: Iterable[int | None]) -> pa.Array:
    """Return milliseconds since 1970 as timestamps; null outside the years 1 to 9999."""
    return timestamps_of(pa.array(milliseconds, pa.int64()))


def timestamps_of(milliseconds: pa.Array) -> pa.Array:
    """Return a column of 64-bit milliseconds as timestamps, like `timestamps`."""
    return _between(milliseconds, FIRST_MS, LAST_MS).cast(pa.timestamp("ms", "UTC")).cast(_UTC)


def supported_timestamps(timestamps: pa.Array) -> pa.Array:
    """Return timestamps in microseconds, with null for those outside the years 1 to 9999."""
    return _between(timestamps.cast(pa.int64()), FIRST_MS * 1000, LAST_MS * 1000 + 999).cast(_UTC)


def _between(numbers: pa.Array, first: int, last: int) -> pa.Array:
    is_between = pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last))
    return pc.if_else(is_between, numbers, pa.scalar(None, pa.int64()))


def with_constant_columns(rows: pa.Table, values: Mapping[str, Any]) -> pa.Table:
    """Return the rows with a column added for each value, the same in every row."""
    for name, value in values.items():
        rows = rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))
    return rows


def partition_numbers(rows: pa.Table, values: Mapping[int, int], default: int) -> pa.Array:
    """Return for each row the value of its offsets partition; `default` if there is none."""
    partitions = rows["offsets_partition"].to_numpy()
    numbers = np.full(max([partitions.max(initial=-1), *values]) + 1, default, np.int64)
    for partition, number in values.items():
        numbers[partition] = number
    return pa.array(numbers[partitions])


def to_bytes(rows: pa.Table | pa.RecordBatch) -> bytes:
    """Return the rows as an Arrow stream, which the JVM carries faster than rows; `pa.ipc.open_stream` reads it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def renamed(rows: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """Return the rows with columns added under new names; `names` maps each new name to the old one."""
    for new, old in names.items():
        rows = rows.append_column(new, rows[old])
    return rows


def is_null(rows: pa.Table, column: str) -> pa.Array:
    """Return for each row whether the column is null."""
    return pc.is_null(rows[column])


Rows = Sequence[Row | Assignments]


def flat_rows(rows: Rows) -> list[Row]:
    """Return all rows as one flat list."""
    return [row for each in rows for row in (each.rows() if isinstance(each, Assignments) else (each,))]


def count(rows: Rows) -> int:
    """Return the number of rows."""
    return sum(len(each) if isinstance(each, Assignments) else 1 for each in rows)


def from_rows(rows: Iterable[Row | Assignments], schema: TableSchema) -> pa.Table:
    """Return the rows as an Arrow table; they must all be `Row`, or all be `Assignments`."""
    rows = list(rows)
    if rows and isinstance(rows[0], Assignments):
        return _of_assignments(cast("list[Assignments]", rows), schema)
    plain = cast("list[Row]", rows)
    fields = zip(schema.columns, schema.arrow, strict=True)
    return pa.table([_column(plain, column, field.type) for column, field in fields], schema=schema.arrow)


def _of_assignments(found: Sequence[Assignments], schema: TableSchema) -> pa.Table:
    """Build the columns of assignments. Values that several rows share are converted once and then repeated."""
    by_place = [shared for each in found for shared in each.by_place()]
    shared_schema = replace(schema, columns=tuple(own for own in schema.columns if own.name not in PARTITION_COLUMNS))
    shared = from_rows((row for row, _ in by_place), shared_schema)
    rows = shared.take(np.repeat(np.arange(len(by_place)), [len(partitions) for _, partitions in by_place]))
    # The keys and the values of a dict are in the same order.
    numbers: Iterable[int | None] = chain.from_iterable(partitions for _, partitions in by_place)
    epochs = chain.from_iterable(partitions.values() for _, partitions in by_place)
    for name, values in zip(PARTITION_COLUMNS, (numbers, epochs), strict=True):
        field = schema.arrow.field(name)
        rows = rows.append_column(field, _repeated([*values], field.type))
    return rows.select(schema.column_names)


def _column(rows: Sequence[Row], column: ColumnSchema, type_: pa.DataType) -> pa.Array:
    if column.type == "TIMESTAMP":
        return timestamps_of(_repeated([*map(itemgetter(f"{column.name}_ms"), rows)], pa.int64()))
    return _repeated([*map(itemgetter(column.name), rows)], type_)


def _repeated(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    # Most columns of a group's rows have the same value in all rows: to find that out is faster than to convert them.
    if values and values[0] == values[-1] and values.count(values[0]) == len(values):
        return pa.repeat(pa.scalar(values[0], type_), len(values))
    return pa.array(values, type_)


@dataclass(frozen=True)
class Size:
    """Number of rows, and the bytes of their keys, values and JSON."""

    rows: int
    bytes: int

    @property
    def fits_driver(self) -> bool:
        """Whether the driver can process the rows at once."""
        return self.portions == 1

    @property
    def portions(self) -> int:
        """Into how many portions to divide the rows for the driver."""
        return self.parts(SMALL_ROWS, SMALL_BYTES)

    def parts(self, rows: int, bytes_: int) -> int:
        """Return into how many parts to divide the rows, so that most have at most these rows and bytes."""
        return max(1, -(-self.rows // rows), -(-self.bytes // bytes_))


ROWS_AT_ONCE = 10_000
_RECORDS_AT_ONCE = 64  # each may be a megabyte of JSON


def to_python(records: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield records as plain rows."""
    for batch in records.to_batches(max_chunksize=_RECORDS_AT_ONCE):
        yield from batch.to_pylist()


def in_pieces(found: Iterable[Mapping[str, Rows]], schemas: Sequence[TableSchema]) -> Iterator[dict[str, pa.Table]]:
    """Yield plain rows (times in milliseconds), given by table, as Arrow tables of about `ROWS_AT_ONCE` rows together.

    There is at least one piece, and each has all tables.
    """
    waiting: dict[str, list[Row | Assignments]] = {schema.name: [] for schema in schemas}
    size = 0
    for each in found:
        for name, rows in each.items():
            waiting[name] += rows
            size += count(rows)
        if size >= ROWS_AT_ONCE:
            yield _converted(waiting, schemas)
            size = 0
    yield _converted(waiting, schemas)


def joined(pieces: Iterable[Mapping[str, pa.Table]]) -> dict[str, pa.Table]:
    """Return all rows of the pieces by table."""
    parts = list(pieces)
    return {name: pa.concat_tables([part[name] for part in parts]) for name in parts[0]}


def _converted(waiting: Mapping[str, list[Row | Assignments]], schemas: Sequence[TableSchema]) -> dict[str, pa.Table]:
    converted = {schema.name: from_rows(waiting[schema.name], schema) for schema in schemas}
    for rows in waiting.values():
        rows.clear()
    return converted


RENAMED = {  # by history table: its columns that have another name in decoded records
    COMMITS: {"key_version": "key_type", "value_bytes": "value_size"},
    RECORDS: {"value_bytes": "value_size"},
    UNDECODABLE: {"reason": "error", "value_bytes": "value"},
}
CELLS_RENAMED = {  # the same for the tables of cells, which get the last record of each key
    COMMITTED_OFFSETS: RENAMED[COMMITS] | {DELETED: "is_tombstone"},
    GROUP_CELLS: RENAMED[RECORDS] | {DELETED: "is_tombstone"},
}


def decode_on_driver(raw: pa.Table) -> pa.Table:
    """Return the raw records with the decoded columns and timestamps added."""
    decoded = decode_records(raw["key"], raw["value"])
    derived = {
        "record_timestamp": supported_timestamps(raw["record_timestamp"]),
        "commit_timestamp": timestamps_of(decoded["commit_timestamp_ms"]),
        "expire_timestamp": timestamps_of(decoded["expire_timestamp_ms"]),
        "key_bytes": raw["key"],
        "value_size": pc.binary_length(raw["value"]),
    }
    columns = (dict(zip(rows.schema.names, rows.columns, strict=True)) for rows in (raw, decoded))
    return pa.table({name: column for part in (*columns, derived) for name, column in part.items()})


def belongs_to(table: str, decoded: pa.Table) -> pa.Array:
    """Return for each decoded record whether it belongs to the history table."""
    return by_table(decoded)[table]


def by_table(decoded: pa.Table) -> dict[str, pa.Array]:
    """Return for each history table which of the decoded records belong to it."""
    good = is_null(decoded, "error")
    commit = pc.is_in(decoded["key_type"], pa.array(COMMIT_KEY_TYPES, decoded["key_type"].type))
    kinds = (pc.and_(good, commit), pc.and_(good, pc.invert(commit)), pc.invert(good))
    return dict(zip(RECORD_TABLES, kinds, strict=True))


def with_history_columns(table: str, decoded: pa.Table) -> pa.Table:
    """Return the decoded records with the columns of the history table added."""
    return renamed(decoded, RENAMED[table])


GROUP_CONSTANTS = ("offsets_partition", "log_id", "in_coordinator_partition")  # the same in every row of a group


def cell_of(row: Mapping[str, Any]) -> Cell:
    """Return the cell of a row of `group_cells`; the row may have `record_timestamp_ms` instead of a timestamp."""
    at = row.get("record_timestamp")
    return Cell(
        key_type=row["key_type"],
        key=json.loads(row["key_json"])["data"],
        value=json.loads(row["value_json"])["data"],
        record_offset=row["record_offset"],
        record_timestamp_ms=row.get("record_timestamp_ms") if at is None else round(at.timestamp() * 1000),
    )


def rows_of_group(
    cells: Sequence[Cell],
    group_id: str,
    topic_names: Mapping[str, str],
    *,
    exists: bool,
    place: Mapping[str, Any] | None = None,
) -> dict[str, Rows] | None:
    """Return the group's rows by name of each of `DERIVED_TABLES`; None if there is no such group.

    `exists`: whether the coordinator has the group even without a cell. `place`: values of `GROUP_CONSTANTS`.
    """
    rows = derive_group(cells, group_id=group_id, exists=exists, topic_names=topic_names)
    if rows is None:
        return None
    rows.place(place or {})
    by_table: tuple[Rows, ...] = ([rows.group], rows.members, rows.shares, rows.subscriptions)
    return dict(zip(DERIVED_TABLES, by_table, strict=True))
