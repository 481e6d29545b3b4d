"""Merging rows into a state table, in two ways with one meaning: by Spark, and by the driver with delta-rs.

Spark takes over a second for any merge, the driver some milliseconds for a small one; it needs the rows in memory. Both
write the same application transactions, so that either can repeat what the other began.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import delta.tables
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from offsetstream.errors import DoubledRowsError
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.matching import find_changes, gathered, without
from offsetstream.tables.replace import add_rows, held_if_small, replace_rows, with_users_columns
from offsetstream.tables.schema import TableSchema
from offsetstream.tables.small_tables import is_done, transaction
from offsetstream.tables.transaction import BatchId

DELETED = "_deleted"  # a row of a merge's source that says: this key is no more
_NEWER = (
    "(source.log_id > target.log_id OR "
    "(source.log_id = target.log_id AND source.record_offset >= target.record_offset))"
)


def of_partitions(partitions: Iterable[int]) -> str:
    """Return the condition that a row is of one of the offsets partitions."""
    return f"offsets_partition IN ({', '.join(map(str, partitions)) or 'NULL'})"


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
def merge_by_spark(session: SparkSession, path: str, source: DataFrame, merge: Merge) -> None:
    """Merge a DataFrame with the columns of the table and ``_deleted``; the session holds the transaction."""
    if merge.replace_where is not None:
        _replace_by_spark(session, path, source, merge, merge.replace_where)
        return
    target = delta.tables.DeltaTable.forPath(session, path).alias("target")
    merging = target.merge(source.alias("source"), merge.same_key).whenMatchedDelete(merge.deletes)
    merging.whenMatchedUpdate(merge.updates, merge.values).whenNotMatchedInsert(merge.inserts, merge.values).execute()


@again_on_conflict
def merge_by_delta_rs(path: str, source: pa.Table, merge: Merge, batch: BatchId) -> None:
    """Merge an Arrow table with the columns of the table and ``_deleted``, unless the batch was merged before.

    Raises DoubledRowsError if a key of the source is there more than once, but not where all rows are replaced.
    """
    table, schema = DeltaTable(path), merge.schema
    if is_done(table, schema.name, batch):
        return
    commit, key = transaction(table, schema.name, batch), schema.key
    is_deleted, rows = source[DELETED].combine_chunks(), source.select(schema.column_names).cast(schema.arrow)
    if merge.replace_where is not None:
        rows = with_users_columns(table, merge.replace_where, rows.filter(pc.invert(is_deleted)), key)
        replace_rows(table, merge.replace_where, [rows], commit)
        return
    of_these = of_partitions(sorted(pc.unique(rows["offsets_partition"]).to_pylist()))
    stored = held_if_small(table, of_these)
    changes = find_changes(stored(), rows, is_deleted, key, newer_only=merge.newer_only)
    if changes.doubled:
        raise DoubledRowsError(schema.name, changes.doubled)
    if not len(changes.gone):
        if changes.come.num_rows:  # else nothing is written: a merge that changes nothing makes no version
            add_rows(table, [changes.come], commit)
        return
    again = stored()
    kept = (without(part, changes.gone, key) for part in gathered(again, len(changes.gone)))
    replace_rows(table, of_these, chain(kept, [changes.come]), commit)


def _replace_by_spark(session: SparkSession, path: str, source: DataFrame, merge: Merge, replace_where: str) -> None:
    rows, key = source.where(f"NOT {DELETED}").drop(DELETED), list(merge.schema.key)
    stored = session.read.format("delta").load(path)
    users = [name for name in stored.columns if name not in merge.schema.column_names]
    if users:
        kept = stored.where(replace_where).select(*key, *users).dropDuplicates(key).alias("kept")
        same = [F.col(f"source.{name}").eqNullSafe(F.col(f"kept.{name}")) for name in key]
        columns = [*(f"source.{name}" for name in merge.schema.column_names), *(f"kept.`{name}`" for name in users)]
        rows = rows.alias("source").join(kept, same, "left").select(*columns)
    writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", replace_where)
    for option in ("txnAppId", "txnVersion"):
        writer = writer.option(option, session.conf.get(f"spark.databricks.delta.write.{option}"))
    writer.save(path)
