"""Commits to a table of a catalog. Each succeeds only if it is based on the table's current version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from offsetstream.errors import ConflictError, DoubledRowsError, TablesError
from offsetstream.tables.catalog_store.commits import APPENDS, CHANGES, Stamp, first_stamp
from offsetstream.tables.catalog_store.reads import batches_of
from offsetstream.tables.matching import (
    DELETED,
    Merge,
    RowKeys,
    find_changes,
    rows_with_keys,
    with_all_columns,
    with_users_columns,
)
from offsetstream.tables.schema import is_history, load_schema
from offsetstream.tables.sql import in_partitions, quoted
from offsetstream.tables.store import EVERY_ROW, Transaction

if TYPE_CHECKING:
    from offsetstream.tables.catalog_store.snapshot import CatalogSnapshot


def append_rows(table: CatalogSnapshot, rows: Iterable[pa.Table], transactions: Sequence[Transaction]) -> None:
    """Append rows of Arrow tables; columns that they lack become null."""
    kind = _kind_of_appends(table)
    append(table, to_frame(table, rows, kind), transactions, kind)


def to_frame(table: CatalogSnapshot, rows: Iterable[pa.Table], kind: str = CHANGES) -> DataFrame:
    """Return rows as a DataFrame in the session for commits of the kind; columns that they lack are null."""
    schema = table.arrow
    parts = [with_all_columns(part, schema) for part in rows]
    session = table.store.writer_session(table.name, kind).spark
    return session.createDataFrame(pa.concat_tables([schema.empty_table(), *parts]), table.frame.schema)


def append(
    table: CatalogSnapshot, rows: DataFrame, transactions: Sequence[Transaction], kind: str | None = None
) -> None:
    """Append rows: to a history even if it was changed since, to a state table only if it was not."""
    kind = kind or _kind_of_appends(table)
    _commit(table, kind, transactions, lambda stamp: _append(table, rows, stamp))


def replace(table: CatalogSnapshot, where: str, rows: DataFrame, transactions: Sequence[Transaction]) -> None:
    """Replace all rows that match the condition by `rows`."""
    if is_history(table.name) and not _is_doubled(table, where):
        _commit(table, CHANGES, transactions, lambda stamp: _replace_known(table, where, rows, stamp))
        return
    condition = F.lit(True) if where == EVERY_ROW else F.expr(where)
    _commit(
        table,
        CHANGES,
        transactions,
        lambda stamp: rows.writeTo(table.table).options(**stamp.options).overwrite(condition),
    )


def with_users_columns_of(table: CatalogSnapshot, where: str, rows: DataFrame) -> DataFrame:
    """Do the same as `matching.with_users_columns` for rows in Spark."""
    users, key = [name for name in table.arrow.names if name not in rows.columns], load_schema(table.name).key
    if not users:
        return rows
    kept = table.frame.where(where).select(*key, *map(quoted, users)).dropDuplicates([*key])
    columns = [*(f"source.{name}" for name in rows.columns), *(f"kept.{quoted(name)}" for name in users)]
    return rows.alias("source").join(kept.alias("kept"), _same(key, "source", "kept"), "left").select(*columns)


def merge_rows(table: CatalogSnapshot, source: pa.Table, merge: Merge, transactions: Sequence[Transaction]) -> None:
    """Merge `source` (the table's columns and `_deleted`), as `Snapshot.merge` describes."""
    schema, key = merge.schema, merge.schema.key
    is_deleted, rows = source[DELETED].combine_chunks(), source.select(schema.column_names).cast(schema.arrow)
    if merge.replace_where is not None:
        only = with_users_columns(table, merge.replace_where, rows.filter(pc.invert(is_deleted)), key)
        table.replace(merge.replace_where, [only], *transactions)
        return
    changes = find_changes(_stored(table, rows, key), rows, is_deleted, key, newer_only=merge.newer_only)
    if changes.doubled:
        raise DoubledRowsError(schema.name, changes.doubled)
    if not changes.removed.num_rows:
        if changes.added.num_rows:  # a merge that changes nothing must not make a version
            append(table, to_frame(table, [changes.added]), transactions, CHANGES)
        return
    deleted = rows_with_keys(rows.filter(is_deleted), RowKeys(changes.removed, key))
    frames = {False: to_frame(table, [changes.added]), True: to_frame(table, [deleted])}
    changed = reduce(DataFrame.union, (frame.withColumn(DELETED, F.lit(gone)) for gone, frame in frames.items()))
    _commit(table, CHANGES, transactions, lambda stamp: _merge(table, changed, key, stamp))


def _commit(
    table: CatalogSnapshot, kind: str, transactions: Sequence[Transaction], write: Callable[[Stamp], None]
) -> None:
    """Commit a write and refresh the table; ConflictError if Delta skipped or rejected the commit."""
    conflict = ConflictError(f"the table {table.where} was written to meanwhile")
    session = table.store.writer_session(table.name, kind)
    if kind not in table.state.transactions:
        # The notes are gone, so the last number is unknown: an empty commit checks that the state read is current.
        first, read = first_stamp(table.state, kind), table.version
        with table.asking("write to"):
            _append(table, table.frame.limit(0), first)
        table.refresh()
        if first.commit not in table.state.commits or table.version != read + 1:
            raise conflict
    stamp = Stamp.after(table.state, kind, transactions)
    with session.turn():
        try:
            with table.asking("write to"):
                write(stamp)
        except TablesError:
            with suppress(TablesError):
                table.refresh()
            if stamp.commit not in table.state.commits:  # else the commit succeeded and only the answer was lost
                raise
            return
        version = session.committed_version
    if version == table.version + 1:
        table.state = stamp.done
        return
    table.refresh()  # somebody else committed too, or the rows came from another session
    if stamp.commit not in table.state.commits:  # Delta skipped it: another commit has its number
        raise conflict


def _kind_of_appends(table: CatalogSnapshot) -> str:
    return APPENDS if is_history(table.name) else CHANGES


def _append(table: CatalogSnapshot, rows: DataFrame, stamp: Stamp) -> None:
    rows.writeTo(table.table).options(**stamp.options).append()


def _replace_known(table: CatalogSnapshot, where: str, rows: DataFrame, stamp: Stamp) -> None:
    """Replace the rows of a history that were read; rows that were appended meanwhile stay."""
    key = load_schema(table.name).row_key
    before = table.frame.where(where)
    gone = before.alias("old").join(rows.alias("new"), _same(key, "old", "new"), "left_anti")
    changed = rows.exceptAll(before).withColumn(DELETED, F.lit(False)).union(gone.withColumn(DELETED, F.lit(True)))
    _merge(table, changed, key, stamp, where)


def _merge(
    table: CatalogSnapshot, changed: DataFrame, key: Sequence[str], stamp: Stamp, where: str = EVERY_ROW
) -> None:
    """Merge rows that are known to change the table.

    The source's columns get new names, so that names in the condition `where` mean the table's columns.
    """
    new = {name: f"_new_{name}" for name in changed.columns}
    session = table.store.writer_session(table.name, CHANGES).spark
    values: dict[str, str | Column] = {name: f"source.`{new[name]}`" for name in table.arrow.names}
    same = " AND ".join(f"target.`{name}` <=> source.`{new[name]}`" for name in key)
    with stamp.on(session):
        into = DeltaTable.forName(session, table.table).alias("target")
        merging = into.merge(changed.withColumnsRenamed(new).alias("source"), f"({where}) AND {same}")
        merging = merging.whenMatchedDelete(f"source.{new[DELETED]}")
        merging.whenMatchedUpdate(None, values).whenNotMatchedInsert(f"NOT source.{new[DELETED]}", values).execute()


def _stored(table: CatalogSnapshot, rows: pa.Table, key: Sequence[str]) -> Iterable[pa.Table]:
    """Return the stored rows that have the key of one of `rows`."""
    keys = table.store.spark.createDataFrame(rows.select(key))
    same_partitions = in_partitions(sorted(pc.unique(rows["offsets_partition"]).to_pylist()))
    found = table.frame.where(same_partitions).alias("old")
    found = found.join(F.broadcast(keys).alias("new"), _same(key, "old", "new"), "left_semi")
    return [pa.Table.from_batches([each]) for each in batches_of(found, table.where, is_small=True)]


def _same(key: Sequence[str], one: str, other: str) -> list[Column]:
    return [F.col(f"{one}.{name}").eqNullSafe(F.col(f"{other}.{name}")) for name in key]


def _is_doubled(table: CatalogSnapshot, where: str) -> bool:
    key = ", ".join(load_schema(table.name).row_key)
    doubled = f"SELECT 1 AS one FROM rows WHERE {where} GROUP BY {key} HAVING count(*) > 1 LIMIT 1"  # noqa: S608
    return bool(table.query(doubled).read_all().num_rows)
