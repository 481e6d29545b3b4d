"""Write tables: append rows to a history, merge rows into a state table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, reduce
from operator import add

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.doubled_rows import require_no_doubled_rows
from offsetstream.tables.engines import Size, StateWrites, driver_merges
from offsetstream.tables.merge import DELETED, Merge, merge_on_driver
from offsetstream.tables.schema import load_schema
from offsetstream.tables.session_settings import with_settings
from offsetstream.tables.store import Store, Transaction
from offsetstream.tables.transaction import BatchId, transaction_of


class TableWriter:
    """Writes the rows of micro-batches and loads; each write can be repeated.

    `state_writes` can force the engine for merges. `merged_by` has the engine of each table's last merge.
    """

    def __init__(self, spark: SparkSession, tables: Store, state_writes: StateWrites = StateWrites.AUTO) -> None:
        self.spark = spark
        self.tables = tables
        self.state_writes = state_writes
        self.merged_by: dict[str, StateWrites] = {}
        self._in_spark = tables.in_spark(spark)

    def rows(self, table: str) -> DataFrame:
        """Return the table's current rows."""
        return self._in_spark.frame(table)

    @contextmanager
    def bulk(self) -> Iterator[None]:
        """Turn off optimized writes and auto-compaction: the few large files of a load do not need them."""
        names = ("spark.databricks.delta.optimizeWrite.enabled", "spark.databricks.delta.autoCompact.enabled")
        with with_settings(self.spark, dict.fromkeys(names, "false")):
            yield

    def append(self, table: str, rows: DataFrame, batch: BatchId) -> None:
        """Append rows to a history table; `rows` has its columns except the three of `SIGNATURE`."""
        complete = signed(rows, batch).select(*load_schema(table).column_names)
        self._write_again_on_conflict(table, batch, partial(self._in_spark.append, table, complete))

    def merge(
        self, table: str, rows: DataFrame, batch: BatchId, *, newer_only: bool = False, replace_where: str | None = None
    ) -> None:
        """Merge rows into a state table: insert new keys, update rows that differ, delete keys with `_deleted`.

        `newer_only`: an older record never overwrites a newer one. `replace_where`: a condition; `rows` replace all
        rows that match it, so a load is one atomic step. Without `replace_where`, keys that the table has twice raise
        DoubledRowsError.
        """
        merge = Merge(load_schema(table), newer_only=newer_only, replace_where=replace_where)
        source = rows if DELETED in rows.columns else rows.withColumn(DELETED, F.lit(False))
        source = source.select(*merge.schema.column_names, DELETED)
        if driver_merges(self.state_writes, partial(_measured, source)):
            self.merged_by[table] = StateWrites.DRIVER
            merge_on_driver(self.tables, source.toArrow(), merge, batch)
            return
        self.merged_by[table] = StateWrites.SPARK
        if replace_where is None:
            require_no_doubled_rows(self.tables, table)
        self._write_again_on_conflict(table, batch, partial(self._in_spark.merge, source, merge))

    @again_on_conflict
    def _write_again_on_conflict(self, table: str, batch: BatchId, write: Callable[[Transaction], None]) -> None:
        write(transaction_of(self.tables.open(table), batch))


def _measured(rows: DataFrame) -> Size:
    texts = [F.coalesce(F.octet_length(name), F.lit(0)) for name, kind in rows.dtypes if kind == "string"]
    size = F.coalesce(F.sum(reduce(add, texts)), F.lit(0))
    counted = rows.agg(F.count(F.lit(1)).alias("rows"), size.alias("bytes")).collect()[0]
    return Size(counted["rows"], counted["bytes"])


def signed(rows: DataFrame, batch: BatchId) -> DataFrame:
    """Return the rows of a history with the columns of `SIGNATURE`: the batch that wrote them, and today."""
    return rows.withColumns(
        {
            "checkpoint_id": F.lit(batch.checkpoint_id),
            "batch_id": F.lit(batch.batch_id).cast("bigint"),
            "written_day": F.to_date(F.current_timestamp()),
        }
    )
