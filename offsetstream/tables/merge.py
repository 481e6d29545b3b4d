"""Merging rows into a state table, in two ways with one meaning: Spark's MERGE, and delta-rs from the driver.

Spark takes over a second for any merge, delta-rs some milliseconds for a small one; it needs the rows in memory. Both
write the same application transactions, so that either can repeat what the other began.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import delta.tables
import deltalake
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.schema import TableSchema
from offsetstream.tables.small import is_done, transaction
from offsetstream.tables.transaction import BatchId

DELETED = "_deleted"  # a row of a merge's source that says: this key is no more
_NEWER = (
    "(source.log_id > target.log_id OR "
    "(source.log_id = target.log_id AND source.record_offset >= target.record_offset))"
)


def of_partitions(partitions: Iterable[int]) -> str:
    """Return the condition on the target that a row is of one of the offsets partitions."""
    return f"target.offsets_partition IN ({', '.join(map(str, partitions))})"


@dataclass(frozen=True)
class Merge:
    """What a merge does, in the SQL that Spark and delta-rs (DataFusion) share."""

    schema: TableSchema
    in_log_order: bool = False  # an older record never overwrites a newer one
    only: str | None = None  # rows of the target that fulfil this and are not in the source are deleted

    @property
    def same_key(self) -> str:
        """The condition under which a row of the source is a row of the target."""
        return " AND ".join(f"(target.{name} IS NOT DISTINCT FROM source.{name})" for name in self.schema.key)

    @property
    def deletes(self) -> str:
        """The condition under which a matched row is deleted."""
        return f"source.{DELETED} AND {_NEWER}" if self.in_log_order else f"source.{DELETED}"

    @property
    def updates(self) -> str:
        """The condition under which a matched row is updated: only where something differs."""
        changed = " OR ".join(f"(target.{name} IS DISTINCT FROM source.{name})" for name in self.schema.column_names)
        newer = f" AND {_NEWER}" if self.in_log_order else ""
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
    target = delta.tables.DeltaTable.forPath(session, path).alias("target")
    builder = (
        target.merge(source.alias("source"), merge.same_key)
        .whenMatchedDelete(merge.deletes)
        .whenMatchedUpdate(merge.updates, merge.values)
        .whenNotMatchedInsert(merge.inserts, merge.values)
    )
    if merge.only is not None:
        builder = builder.whenNotMatchedBySourceDelete(merge.only)
    builder.execute()


@again_on_conflict
def merge_by_delta_rs(path: str, source: pa.Table, merge: Merge, batch: BatchId) -> None:
    """Merge an Arrow table with the columns of the table and ``_deleted``, unless the batch was merged before."""
    target = deltalake.DeltaTable(path)
    if is_done(target, merge.schema.name, batch):
        return
    builder = (
        target.merge(
            source.cast(merge.schema.arrow.append(pa.field(DELETED, pa.bool_()))),
            merge.same_key,
            source_alias="source",
            target_alias="target",
            commit_properties=transaction(target, merge.schema.name, batch),
        )
        .when_matched_delete(merge.deletes)
        .when_matched_update(merge.values, merge.updates)
        .when_not_matched_insert(merge.values, merge.inserts)
    )
    if merge.only is not None:
        builder = builder.when_not_matched_by_source_delete(merge.only)
    builder.execute()
