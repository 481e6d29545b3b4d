"""Append, merge and read rows of the tables as Arrow tables, on the driver, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.coordinator.reduction import GROUP
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.matching import regrouped
from offsetstream.tables.merge import DELETED, Merge, merge_on_driver
from offsetstream.tables.row_keys import RowKeys, rows_with_keys
from offsetstream.tables.schema import TableSchema, load_schema
from offsetstream.tables.store import Snapshot, Store, Transaction
from offsetstream.tables.transaction import BatchId, is_done, transaction_of

# Every engine that reads Delta supports these timestamps: the years 1 to 9999, in milliseconds since 1970.
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
_UTC = pa.timestamp("us", "UTC")


# delta-rs (1.6) treats an append like a read of the complete table, so it conflicts with any deletion of rows.
@again_on_conflict
def append_rows(tables: Store, name: str, rows: pa.Table, batch: BatchId) -> pa.Table | None:
    """Append rows to a history table, once per batch; `rows` has its columns except the three of `SIGNATURE`.

    Returns the appended rows; None if there are none, or if this batch appended them before.
    """
    table = tables.open(name)
    if not rows.num_rows or is_done(table, batch):
        return None
    return append_to(table, rows, batch, transaction_of(table, batch))


def append_to(table: Snapshot, rows: pa.Table, batch: BatchId, transaction: Transaction) -> pa.Table:
    """Append rows, signed with the batch, to an opened table; ConflictError if another write came first."""
    signed = conform(with_constant_columns(rows, batch.signature(datetime.now(UTC).date())), load_schema(table.name))
    table.append([signed], transaction)
    return signed


def merge_rows(
    tables: Store,
    name: str,
    rows: pa.Table,
    batch: BatchId,
    *,
    newer_only: bool = False,
    replace_where: str | None = None,
) -> None:
    """Merge rows into a state table by the rules of `Merge`; rows that lack `_deleted` are not deleted.

    Without rows nothing is written, except that `replace_where` deletes. DoubledRowsError: see `merge_on_driver`.
    """
    if not rows.num_rows and replace_where is None:
        return
    schema = load_schema(name)
    deleted = rows[DELETED] if DELETED in rows.column_names else pa.repeat(pa.scalar(False), rows.num_rows)
    source = conform(rows, schema).append_column(DELETED, deleted)
    merge_on_driver(tables, source, Merge(schema, newer_only=newer_only, replace_where=replace_where), batch)


def read_groups(tables: Store, name: str, groups: pa.Table, columns: Sequence[str] = ()) -> pa.Table:
    """Return the table's rows of the groups that the rows `groups` belong to.

    `columns` must include `offsets_partition` and `group_id`; without it all columns are returned.
    """
    schema = load_schema(name)
    selected = list(columns or schema.column_names)
    empty = pa.schema([schema.arrow.field(column) for column in selected]).empty_table()
    if not groups.num_rows:
        return empty
    wanted, stored = RowKeys(groups, GROUP), tables.open(name).rows_of_groups(groups, selected)
    found = [rows_with_keys(part, wanted) for part in regrouped(stored, groups.num_rows)]
    return pa.concat_tables([empty, *found]).cast(empty.schema)


def of_groups(rows: pa.Table, groups: pa.Table) -> pa.Array:
    """Return for each row whether its group is one of those that the rows `groups` belong to."""
    return pc.is_valid(RowKeys(groups, GROUP).find(rows))


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
