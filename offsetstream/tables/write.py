"""The two ways in which tables are written: rows appended to a history, rows merged into a state table."""

from __future__ import annotations

from delta.tables import DeltaTable
from deltalake import DeltaTable as DeltaLog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from offsetstream.tables.location import TablesLocation
from offsetstream.tables.schema import TableSchema, load_schema
from offsetstream.tables.transaction import BatchId, WriterSessions, app_id

DELETED = "_deleted"  # a row of a merge's source that says: this key is no more
_NEWER = (
    "source.log_id > target.log_id OR "
    "(source.log_id = target.log_id AND source.record_offset >= target.record_offset)"
)


class TableWriter:
    """Writes the rows of micro-batches and loads, so that each write can be repeated."""

    def __init__(self, spark: SparkSession, tables: TablesLocation) -> None:
        self.spark = spark
        self._tables = tables
        self._sessions = WriterSessions(spark)

    def rows(self, table: str) -> DataFrame:
        """Return the table's present rows."""
        return self.spark.read.format("delta").load(self._tables.table(table))

    def is_empty(self, table: str) -> bool:
        """Tell whether the table has no files, without a Spark job."""
        return not DeltaLog(self._tables.table(table)).file_uris()

    def append(self, table: str, rows: DataFrame, batch: BatchId) -> None:
        """Append rows to a history table; ``rows`` has its columns but the three that say who wrote them."""
        columns = load_schema(table).column_names
        writer = _signed(rows, batch).select(*columns).write.format("delta").mode("append")
        if not batch.is_load:
            writer = writer.option("txnAppId", app_id(table)).option("txnVersion", batch.version)
        writer.save(self._tables.table(table))

    def merge(
        self, table: str, rows: DataFrame, batch: BatchId, *, in_log_order: bool = False, only: str | None = None
    ) -> None:
        """Merge rows into a state table: insert, update where something differs, delete where ``_deleted``.

        ``in_log_order``: an older record never overwrites a newer one. ``only``: a condition on the target; rows of
        the table that fulfil it and are not among ``rows`` are deleted too, which makes a load one atomic step.
        """
        schema = load_schema(table)
        source = rows if DELETED in rows.columns else rows.withColumn(DELETED, F.lit(False))
        newer = f"({_NEWER})" if in_log_order else "true"
        with self._sessions.transaction(table, batch) as session:
            target = DeltaTable.forPath(session, self._tables.table(table)).alias("target")
            merge = (
                target.merge(source.alias("source"), _same_key(schema))
                .whenMatchedDelete(f"source.{DELETED} AND {newer}")
                .whenMatchedUpdate(f"NOT source.{DELETED} AND {newer} AND {_differs(schema)}", _assignments(schema))
                .whenNotMatchedInsert(f"NOT source.{DELETED}", _assignments(schema))
            )
            if only is not None:
                merge = merge.whenNotMatchedBySourceDelete(only)
            merge.execute()


def _signed(rows: DataFrame, batch: BatchId) -> DataFrame:
    return rows.withColumns(
        {
            "checkpoint_id": F.lit(batch.checkpoint_id),
            "batch_id": F.lit(batch.batch_id).cast("bigint"),
            "written_day": F.to_date(F.current_timestamp()),
        }
    )


def _same_key(schema: TableSchema) -> str:
    return " AND ".join(f"target.`{name}` <=> source.`{name}`" for name in schema.key)


def _differs(schema: TableSchema) -> str:
    return "(" + " OR ".join(f"NOT target.`{name}` <=> source.`{name}`" for name in schema.column_names) + ")"


def _assignments(schema: TableSchema) -> dict[str, str]:
    return {f"`{name}`": f"source.`{name}`" for name in schema.column_names}
