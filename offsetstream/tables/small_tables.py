"""Rows that fit in the driver's memory: it reads and writes them in milliseconds, where Spark takes a second.

These are whole small tables, and what a batch appends to a history.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from offsetstream.tables.matching import RowKeys, rows_without_keys, with_users_columns
from offsetstream.tables.rows import conform, with_constant_columns
from offsetstream.tables.schema import load_schema
from offsetstream.tables.store import EVERY_ROW, Snapshot, Store, Transaction
from offsetstream.tables.transaction import BatchId, again_on_conflict, is_done, transaction_of

Row = Mapping[str, Any]


def as_utc(time: datetime) -> datetime:
    """Return the time with the zone UTC if it has none."""
    return time.replace(tzinfo=time.tzinfo or UTC)


def read_rows(table: Snapshot, where: str = EVERY_ROW) -> list[dict[str, Any]]:
    """Return the rows of the table that match the condition."""
    return [row for part in table.rows(where) for row in part.to_pylist()]


def rows_per_partition(tables: Store, name: str) -> dict[int, int]:
    """Return the number of rows by offsets partition; partitions without rows are missing."""
    return _per_partition(tables, name, "count(*)")


def first_offsets(tables: Store, name: str) -> dict[int, int]:
    """Return the lowest record offset by offsets partition; partitions without rows are missing."""
    return _per_partition(tables, name, "min(record_offset)")


def _per_partition(tables: Store, name: str, value: str) -> dict[int, int]:
    query = f"SELECT offsets_partition, {value} AS value FROM rows GROUP BY offsets_partition"  # noqa: S608 - ours
    return {row["offsets_partition"]: row["value"] for row in tables.open(name).query(query).read_all().to_pylist()}


@again_on_conflict
def overwrite_rows(tables: Store, name: str, rows: Collection[Row], batch: BatchId) -> None:
    """Replace all rows of the table, once per batch; rows keep the values of a user's columns."""
    table = tables.open(name)
    if not is_done(table, batch):
        overwrite(table, rows, transaction_of(table, batch))


def overwrite(table: Snapshot, rows: Collection[Row], *transactions: Transaction) -> None:
    """Replace all rows of an opened table; ConflictError if somebody else has written to it since."""
    only = with_users_columns(table, EVERY_ROW, _arrow(table.name, rows), load_schema(table.name).key)
    table.replace(EVERY_ROW, [only], *transactions)


@again_on_conflict
def clear_rows(tables: Store, name: str) -> None:
    """Delete all rows of the table."""
    tables.open(name).replace(EVERY_ROW, [])


class CachedRows:
    """The rows of a small table, cached for repeated reads and changes; read again only after somebody else wrote.

    In an object store, a check of an unchanged table takes two requests, and a change takes six.
    """

    def __init__(self, table: Snapshot) -> None:
        self.table = table
        self._rows: list[dict[str, Any]] = []
        self._version: int | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table at the version that was opened or refreshed."""
        if self._version != self.table.version:
            self._rows, self._version = read_rows(self.table), self.table.version
        return self._rows

    def update(self, change: Callable[[Row], Row | None]) -> int:
        """Update each row with the columns that `change` returns; None leaves it. Return how many rows changed.

        If several rows have the same key, one stays: a changed one if there is one. Raises ConflictError if somebody
        else has written since the table was opened or refreshed.
        """
        rows = [(row, change(row)) for row in self.rows]
        rows.sort(key=lambda row: row[1] is not None)  # the last row of each key stays
        changed = sum(new is not None for _, new in rows)
        if changed:
            key, before = load_schema(self.table.name).key, self.table.version
            by_key = {tuple(row[column] for column in key): row | dict(new or {}) for row, new in rows}
            self.table.replace(EVERY_ROW, [pa.Table.from_pylist(list(by_key.values()), schema=self.table.arrow)])
            if self.table.version == before + 1:  # else another commit came in between
                self._rows, self._version = list(by_key.values()), before + 1
        return changed


def update_rows(table: Snapshot, change: Callable[[Row], Row | None]) -> int:
    """Change the rows once, like `CachedRows.update`."""
    return CachedRows(table).update(change)


@again_on_conflict
def insert_rows(tables: Store, name: str, rows: Collection[Row], batch: BatchId) -> None:
    """Insert rows into a history table, signed with the batch, unless the table already has their key.

    A repeated batch inserts what its first attempt did not: it may have observed other events.
    """
    table, key = tables.open(name), load_schema(name).key
    if not batch.is_load and is_done(table, BatchId(batch.checkpoint_id, batch.batch_id + 1)):
        return  # the batch of an older job
    signature = batch.signature()
    new = _arrow(name, [{**row, **signature} for row in rows])
    for stored in table.rows(EVERY_ROW, key):
        new = rows_without_keys(new, RowKeys(stored, key))
    table.append([new], transaction_of(table, batch))


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
    signed = conform(with_constant_columns(rows, batch.signature()), load_schema(table.name))
    table.append([signed], transaction)
    return signed


def _arrow(name: str, rows: Collection[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema=load_schema(name).arrow)
