"""Rows of tables as Spark tasks make them."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
from pyspark.sql import SparkSession

from offsetstream.tables.store import Store
from offsetstream.tables.task_rows import TaskRows
from offsetstream.tables.transaction import BatchId


def from_tasks(tables: Store, name: str, parts: list[pa.Table], batch: BatchId, day: date | None = None) -> TaskRows:
    """Return the rows of a table, each part as one task made it. A catalog's session packs them."""
    packed, reports = list[tuple[bytes]](), []
    for rows in parts:
        writer = tables.task_writer(name, batch.signature(day))
        packed += [(each,) for each in writer.write(rows)]
        reports.append(writer.close())
    if not tables.needs_spark:
        return TaskRows.of(reports)
    spark = SparkSession.getActiveSession()
    assert spark is not None
    return TaskRows.of(reports, spark.createDataFrame(packed, "rows binary"))
