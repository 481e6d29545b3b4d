"""Merges of rows into a state table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.schema import TableSchema
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId, is_done, transaction_of

DELETED = "_deleted"  # column of a merge's source: true if the row's key is to be deleted


@dataclass(frozen=True)
class Merge:
    """The rules of a merge: insert new keys, update rows that differ, delete keys with `_deleted`."""

    schema: TableSchema
    newer_only: bool = False  # an older record never overwrites a newer one
    replace_where: str | None = None  # the source replaces all rows of the table that match, even newer ones


@again_on_conflict
def merge_on_driver(tables: Store, source: pa.Table, merge: Merge, batch: BatchId) -> None:
    """Merge `source` (the table's columns and `_deleted`), unless this batch was merged before.

    Raises DoubledRowsError if the table has a key of the source more than once, except with `replace_where`.
    """
    table = tables.open(merge.schema.name)
    if not is_done(table, batch):
        table.merge(source, merge, transaction_of(table, batch))
