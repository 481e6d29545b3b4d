"""Merging rows into a state table: what a merge means, whoever makes it.

Spark takes over a second for any merge, the driver some milliseconds for a small one; it needs the rows in memory. Both
write the same application transactions, so that either can repeat what the other began.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.schema import TableSchema
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId, is_done, transaction_of

DELETED = "_deleted"  # a row of a merge's source that says: this key is no more
_NEWER = (
    "(source.log_id > target.log_id OR "
    "(source.log_id = target.log_id AND source.record_offset >= target.record_offset))"
)


@dataclass(frozen=True)
class Merge:
    """What a merge does; the conditions are in Spark's SQL."""

    schema: TableSchema
    newer_only: bool = False  # an older record never overwrites a newer one
    replace_where: str | None = None  # the source's rows replace all rows of the table that fulfil this, newer ones too

    @property
    def same_key(self) -> str:
        """The condition under which a row of the source is a row of the target."""
        return " AND ".join(f"(target.{name} IS NOT DISTINCT FROM source.{name})" for name in self.schema.key)

    @property
    def deletes(self) -> str:
        """The condition under which a matched row is deleted."""
        return f"source.{DELETED} AND {_NEWER}" if self.newer_only else f"source.{DELETED}"

    @property
    def updates(self) -> str:
        """The condition under which a matched row is updated: only where something differs."""
        changed = " OR ".join(f"(target.{name} IS DISTINCT FROM source.{name})" for name in self.schema.column_names)
        newer = f" AND {_NEWER}" if self.newer_only else ""
        return f"NOT source.{DELETED}{newer} AND ({changed})"

    @property
    def inserts(self) -> str:
        """The condition under which a row that the target lacks is inserted."""
        return f"NOT source.{DELETED}"

    @property
    def values(self) -> dict[str, Any]:
        """Every column, taken from the source."""
        return {name: f"source.{name}" for name in self.schema.column_names}


@again_on_conflict
def merge_on_driver(tables: Store, source: pa.Table, merge: Merge, batch: BatchId) -> None:
    """Merge an Arrow table with the columns of the table and `_deleted`, unless the batch was merged before.

    Raises DoubledRowsError if a key of the source is there more than once, but not where all rows are replaced.
    """
    table = tables.open(merge.schema.name)
    if not is_done(table, batch):
        table.merge(source, merge, transaction_of(table, batch))
