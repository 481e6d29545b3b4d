"""Write rows from Spark: append to a history, replace rows of a state table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.schema import load_schema
from offsetstream.tables.session_settings import with_settings
from offsetstream.tables.store import Store, Transaction
from offsetstream.tables.transaction import BatchId, transaction_of


class TableWriter:
    """Writes the rows of micro-batches and loads; each write can be repeated."""

    def __init__(self, spark: SparkSession, tables: Store) -> None:
        self.spark = spark
        self.tables = tables
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

    def replace(self, table: str, rows: DataFrame, batch: BatchId, where: str) -> None:
        """Replace all rows of a state table that match the condition by `rows`, in one commit."""
        self._write_again_on_conflict(table, batch, partial(self._in_spark.replace, table, rows, where))

    @again_on_conflict
    def _write_again_on_conflict(self, table: str, batch: BatchId, write: Callable[[Transaction], None]) -> None:
        write(transaction_of(self.tables.open(table), batch))


def signed(rows: DataFrame, batch: BatchId) -> DataFrame:
    """Return the rows of a history with the columns of `SIGNATURE`: the batch that wrote them, and today."""
    return rows.withColumns(
        {
            "checkpoint_id": F.lit(batch.checkpoint_id),
            "batch_id": F.lit(batch.batch_id).cast("bigint"),
            "written_day": F.to_date(F.current_timestamp()),
        }
    )
