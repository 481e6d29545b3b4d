"""Merges into a state table: the rules, which are the same for the driver and for Spark.

Spark takes over a second for any merge. The driver takes some milliseconds for a small one, but needs the rows in
memory. Both write the same application transactions, so either can repeat a write that the other started.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.schema import TableSchema
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId, is_done, transaction_of

DELETED = "_deleted"  # column of a merge's source: true if the row's key is to be deleted
_NEWER = (
    "(source.log_id > target.log_id OR "
    "(source.log_id = target.log_id AND source.record_offset >= target.record_offset))"
)


@dataclass(frozen=True)
class Merge:
    """The rules of a merge; conditions are Spark SQL."""

    schema: TableSchema
    newer_only: bool = False  # an older record never overwrites a newer one
    replace_where: str | None = None  # the source replaces all rows of the table that match, even newer ones

    @property
    def same_key(self) -> str:
        """The condition that a row of the source and a row of the target have the same key."""
        return " AND ".join(f"(target.{name} IS NOT DISTINCT FROM source.{name})" for name in self.schema.key)

    @property
    def deletes(self) -> str:
        """The condition that deletes a matched row."""
        return f"source.{DELETED} AND {_NEWER}" if self.newer_only else f"source.{DELETED}"

    @property
    def updates(self) -> str:
        """The condition that updates a matched row: only if a value differs."""
        changed = " OR ".join(f"(target.{name} IS DISTINCT FROM source.{name})" for name in self.schema.column_names)
        newer = f" AND {_NEWER}" if self.newer_only else ""
        return f"NOT source.{DELETED}{newer} AND ({changed})"

    @property
    def inserts(self) -> str:
        """The condition that inserts a row whose key the target lacks."""
        return f"NOT source.{DELETED}"

    @property
    def values(self) -> dict[str, Any]:
        """Every column, taken from the source."""
        return {name: f"source.{name}" for name in self.schema.column_names}


@again_on_conflict
def merge_on_driver(tables: Store, source: pa.Table, merge: Merge, batch: BatchId) -> None:
    """Merge `source` (the table's columns and `_deleted`), unless this batch was merged before.

    Raises DoubledRowsError if the table has a key of the source more than once, except with `replace_where`.
    """
    table = tables.open(merge.schema.name)
    if not is_done(table, batch):
        table.merge(source, merge, transaction_of(table, batch))
