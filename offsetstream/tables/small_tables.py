"""Small tables whose rows the driver holds: written by delta-rs, in milliseconds where Spark takes a second.

Delta's application transactions are the ones that Spark honours too, but delta-rs does not skip by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction

from offsetstream.errors import LeaseError
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.matching import keys_of, without
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.replace import (
    EVERY_ROW,
    add_rows,
    arrow_schema,
    replace_rows,
    stored_rows,
    with_users_columns,
)
from offsetstream.tables.schema import load_schema
from offsetstream.tables.transaction import BatchId, app_id, load_app_id

Row = Mapping[str, Any]


def as_utc(time: datetime) -> datetime:
    """Return the time of a row with its zone, where whoever read it left that out."""
    return time.replace(tzinfo=time.tzinfo or UTC)


def read_rows(table: DeltaTable, where: str = "true") -> list[dict[str, Any]]:
    """Return the rows of the table that fulfil the condition, in DataFusion's SQL."""
    # Not to_pyarrow_table(): its reader threads abort the process now and then when it ends soon afterwards.
    reader = QueryBuilder().register("rows", table).execute(f"SELECT * FROM rows WHERE {where}")  # noqa: S608 - the program's own SQL
    rows: list[dict[str, Any]] = pa.table(reader).to_pylist()
    return rows


def rows_per_partition(tables: PathStore, name: str) -> dict[int, int]:
    """Return how many rows the table has of each offsets partition that it has rows of."""
    reader = QueryBuilder().register("rows", DeltaTable(tables.table(name)))
    counted = reader.execute("SELECT offsets_partition, count(*) AS rows FROM rows GROUP BY offsets_partition")
    return {row["offsets_partition"]: row["rows"] for row in pa.table(counted).to_pylist()}


def sql_text(text: str) -> str:
    """Return the text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def sql_timestamp(instant: datetime) -> str:
    """Return the instant as DataFusion's SQL has it."""
    return f"arrow_cast({round(instant.timestamp() * 1_000_000)}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


@again_on_conflict
def overwrite_rows(tables: PathStore, name: str, rows: Iterable[Row], batch: BatchId) -> None:
    """Make the rows the table's only ones, once per batch; what a user's columns have of them stays."""
    table = DeltaTable(tables.table(name))
    if not is_done(table, name, batch):
        only = with_users_columns(table, EVERY_ROW, _arrow(name, rows), load_schema(name).key)
        replace_rows(table, EVERY_ROW, [only], transaction(table, name, batch))


def update_rows(table: DeltaTable, name: str, change: Callable[[Row], Row | None]) -> int:
    """Give each row the columns that ``change`` returns for it, or leave it (None); returns how many were changed.

    Of rows with the same key one stays, a changed one if there is. Raises CommitFailedError if somebody else wrote
    since the table was opened.
    """
    rows = [(row, change(row)) for row in read_rows(table)]
    rows.sort(key=lambda row: row[1] is not None)  # the last of a key stays
    changed = sum(new is not None for _, new in rows)
    if changed:
        key = load_schema(name).key
        by_key = {tuple(row[column] for column in key): row | dict(new or {}) for row, new in rows}
        replace_rows(table, EVERY_ROW, [pa.Table.from_pylist(list(by_key.values()), schema=arrow_schema(table))])
    return changed


@again_on_conflict
def insert_rows(tables: PathStore, name: str, rows: Iterable[Row], batch: BatchId) -> None:
    """Insert the rows of a history table whose key it does not have yet, signed with the batch.

    A repeated batch inserts what the first one did not: it may have seen other things than that one.
    """
    table, key = DeltaTable(tables.table(name)), load_schema(name).key
    if not batch.is_load and is_done(table, name, BatchId(batch.checkpoint_id, batch.batch_id + 1)):
        return  # an older job's
    signature = batch.signature(datetime.now(UTC).date())
    new = _arrow(name, [{**row, **signature} for row in rows])
    for stored in stored_rows(table, EVERY_ROW, key):
        new = without(new, keys_of(stored, key), key)
    add_rows(table, [new], transaction(table, name, batch))


def _arrow(name: str, rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema=load_schema(name).arrow)


def is_done(table: DeltaTable, name: str, batch: BatchId) -> bool:
    """Tell whether the table has the batch's transaction already; a load is always done anew."""
    done = table.transaction_version(app_id(name))
    return not batch.is_load and done is not None and done >= batch.version


def transaction(table: DeltaTable, name: str, batch: BatchId) -> CommitProperties:
    """Return what makes delta-rs write the batch's transaction with a commit to the table as it was read."""
    return CommitProperties(app_transactions=[Transaction(*transaction_of(table, name, batch))])


def transaction_of(table: DeltaTable, name: str, batch: BatchId) -> tuple[str, int]:
    """Return the application id and version of the batch's transaction.

    A load's is always the next one, so that it is never skipped; it is there because of two commits with the same id
    the second fails: a job that was taken over cannot finish what it began. LeaseError if the table shows that.
    """
    if not batch.is_load:
        return app_id(name), batch.version
    last: int | None = table.transaction_version(load_app_id(name))
    if last is not None and last >> 32 > batch.checkpoint_id:
        raise LeaseError("another job has taken over the lease of these tables: this one stops")
    return load_app_id(name), max(last or 0, batch.version) + 1
