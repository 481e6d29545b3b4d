"""Rows and their keys: what a merge into a state table changes, computed on the driver with Arrow columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.coordinator.reduction import GROUP
from offsetstream.errors import DoubledRowsError
from offsetstream.in_parts import in_parts
from offsetstream.tables.rows import conform
from offsetstream.tables.schema import DELETED, load_schema
from offsetstream.tables.store import EVERY_ROW, Merge, Snapshot, Store
from offsetstream.tables.transaction import BatchId, again_on_conflict, is_done, transaction_of


@again_on_conflict
def merge_on_driver(tables: Store, source: pa.Table, merge: Merge, batch: BatchId) -> None:
    """Merge `source` (the table's columns and `_deleted`), unless this batch was merged before.

    Raises DoubledRowsError if the table has a key of the source more than once, except with `replace_where`.
    """
    table = tables.open(merge.schema.name)
    if not is_done(table, batch):
        table.merge(source, merge, transaction_of(table, batch))


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


@dataclass(frozen=True)
class Changes:
    """`removed`: the keys of the stored rows to remove, with their groups. `added`: the rows to add.

    `doubled`: the offsets partitions of rows whose key is stored more than once.
    """

    removed: pa.Table
    added: pa.Table
    doubled: frozenset[int]


def regrouped(parts: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield the parts in pieces of at least `rows` rows (the last may have fewer).

    To look up keys among n rows takes time in proportion to n, so each look-up is done for at least as many rows.
    """
    for piece in in_parts(parts, rows, lambda part: part.num_rows):
        yield pa.concat_tables(piece)


def find_changes(
    stored: Iterable[pa.Table], source: pa.Table, is_deleted: pa.Array, key: Sequence[str], *, newer_only: bool
) -> Changes:
    """Compare stored rows with the rows of a source, whose keys are unique.

    A stored row with a key of the source is removed if `is_deleted` is true for it, and updated if a value differs;
    with `newer_only`, not if the stored row is newer. It keeps columns that the source lacks. Rows of the source whose
    key is not stored are added.
    """
    keys: RowKeys | None = None
    times = np.zeros(source.num_rows, np.int64)
    removed, added = [], []
    for part in regrouped(stored, source.num_rows):
        if keys is None:  # only when needed: a million rows take half a second, and often nothing is stored
            keys = RowKeys(source, key)
        at = keys.find(part)
        old, at = part.filter(pc.is_valid(at)), at.drop_null()
        np.add.at(times, at.to_numpy(), 1)
        new, deleted = source.take(at), is_deleted.take(at)
        changed = pc.or_(deleted, _differ(old, new))
        if newer_only:
            changed = pc.and_(changed, _is_newer(new, old))
        removed.append(at.filter(changed))
        updated = pc.and_(changed, pc.invert(deleted))
        added.append(_over(old.filter(updated), new.filter(updated)))
    added.append(source.filter(pc.and_(pa.array(times == 0), pc.invert(is_deleted))))
    doubled = source.filter(pa.array(times > 1))
    partitions = frozenset(doubled["offsets_partition"].to_pylist()) if doubled.num_rows else frozenset[int]()
    names = dict.fromkeys([*key, *(name for name in GROUP if name in source.column_names)])
    changed_keys = source.select(list(names)).take(pa.chunked_array(removed, pa.int32()).combine_chunks())
    return Changes(changed_keys, pa.concat_tables(added, promote_options="default"), partitions)


def with_all_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with exactly the columns of the schema; missing columns are null."""
    columns: list[Any] = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def with_users_columns(table: Snapshot, where: str, rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return `rows`, which will replace stored rows, with the stored values of a user's columns added by key."""
    users = [name for name in table.arrow.names if name not in rows.column_names]
    if not users:
        return rows
    keys, found, at = RowKeys(rows, key), [], []
    for part in table.rows(where, [*key, *users]):
        found.append(part.select(users))
        at.append(keys.find(part))
    if not found:
        return rows
    row_of_key = pc.index_in(pa.array(range(rows.num_rows), pa.int32()), value_set=pa.chunked_array(at))
    values = pa.concat_tables(found).take(row_of_key)
    for name in users:
        rows = rows.append_column(values.schema.field(name), values[name])
    return rows


def _over(old: pa.Table, new: pa.Table) -> pa.Table:
    """Return the new rows with the columns added that only the old rows have."""
    for name in old.column_names:
        if name not in new.column_names:
            new = new.append_column(old.schema.field(name), old[name])
    return new


def _is_newer(new: pa.Table, old: pa.Table) -> pa.ChunkedArray:
    same_log = pc.and_(
        pc.equal(new["log_id"], old["log_id"]), pc.greater_equal(new["record_offset"], old["record_offset"])
    )
    return pc.fill_null(pc.or_kleene(pc.greater(new["log_id"], old["log_id"]), same_log), False)


def _differ(old: pa.Table, new: pa.Table) -> Any:
    return reduce(pc.or_, (_differs(old[name], new[name]) for name in new.column_names))


def _differs(one: Any, other: Any) -> Any:
    is_one_null = pc.xor(pc.is_null(one), pc.is_null(other))
    return pc.or_(is_one_null, pc.fill_null(pc.not_equal(one, other), False))


@dataclass(frozen=True)
class _Column:
    """A column of the keys: its distinct values, and the distinct numbers of the keys up to this column.

    A value or a key is represented by its position in these arrays.
    """

    name: str
    values: pa.Array
    so_far: pa.Array


class RowKeys:
    """The keys of rows; a key is some of the columns, and null is a value like any other.

    Each key becomes a number, column by column: the number so far and the position of the column's value are combined
    into one number, which is then replaced by its position among the distinct ones. So no number is greater than the
    number of rows times the number of values. To turn keys into text took three times as long.
    """

    def __init__(self, rows: pa.Table, names: Sequence[str]) -> None:
        self._columns = list[_Column]()
        numbers: pa.Array | None = None
        for name in names:
            values = pc.unique(rows[name])
            numbers_here = _combined(numbers, pc.index_in(_one_chunk(rows[name]), value_set=values), len(values))
            self._columns.append(_Column(name, values, pc.unique(numbers_here)))
            numbers = pc.index_in(numbers_here, value_set=self._columns[-1].so_far)
        self._numbers = numbers

    def find(self, rows: pa.Table) -> pa.Array:
        """Return for each row the position of the first known row with the same key; null if there is none."""
        numbers: pa.Array | None = None
        for column in self._columns:
            own = pc.index_in(_one_chunk(rows[column.name]).cast(column.values.type), value_set=column.values)
            numbers = _positions(_combined(numbers, own, len(column.values)), column.so_far)
        return _positions(numbers, self._numbers)


def rows_with_keys(rows: pa.Table, keys: RowKeys) -> pa.Table:
    """Return the rows whose key is one of `keys`."""
    return rows.filter(pc.is_valid(keys.find(rows)))


def rows_without_keys(rows: pa.Table, keys: RowKeys) -> pa.Table:
    """Return the rows whose key is not one of `keys`."""
    return rows.filter(pc.is_null(keys.find(rows)))


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


def _combined(before: pa.Array | None, own: pa.Array, size: int) -> pa.Array:
    own = own.cast(pa.int64())
    return own if before is None else pc.add(pc.multiply(before.cast(pa.int64()), pa.scalar(size, pa.int64())), own)


def _positions(numbers: pa.Array, known: pa.Array) -> pa.Array:
    return pc.index_in(numbers, value_set=known, skip_nulls=True)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


_MEMORY = "256MB"  # DuckDB spills to disk beyond this


def require_no_doubled_rows(tables: Store, name: str) -> None:
    """Raise DoubledRowsError if a key is in the table more than once. Reads all keys once.

    The job never writes such rows, but another program may have.
    """
    import duckdb  # noqa: PLC0415 - only a starting job needs it

    key, table = load_schema(name).key, tables.open(name)
    batches = (batch for part in table.rows(EVERY_ROW, key) for batch in part.to_batches())
    reader = pa.RecordBatchReader.from_batches(pa.schema([table.arrow.field(column) for column in key]), batches)
    # Hashes of ten million keys take some hundred megabytes. A collision would only cost an unneeded load.
    query = f"SELECT offsets_partition, hash({', '.join(key)}) FROM reader GROUP BY ALL HAVING count(*) > 1"  # noqa: S608 - our own names
    with duckdb.connect(config={"memory_limit": _MEMORY}) as connection:
        connection.register("reader", reader)
        found = {number for number, _ in connection.execute(query).fetchall()}
    if found:
        raise DoubledRowsError(name, found)
