"""Writes of rows that Spark tasks compute, for inputs that are too large for the driver. Each can be repeated."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
from pyspark import StorageLevel, inheritable_thread_target
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from offsetstream.tables.store import Store, Transaction
from offsetstream.tables.task_rows import TaskRows, TaskWriter
from offsetstream.tables.transaction import BatchId, Step, again_on_conflict, in_parallel, is_made, transaction_of

# Computes rows by table from the rows that a task has, in pieces.
Compute = Callable[[Iterator[pa.RecordBatch]], Iterable[Mapping[str, pa.Table]]]
_FROM_TASKS = pa.schema([("table", pa.string()), ("rows", pa.binary()), ("report", pa.string())])


class TableWriter:
    """Has tasks compute rows of tables, and writes these rows under a micro-batch or load."""

    def __init__(self, spark: SparkSession, tables: Store) -> None:
        self.spark = spark
        self.tables = tables
        self._in_spark = tables.in_spark(spark)

    def rows(self, table: str) -> DataFrame:
        """Return the table's current rows."""
        return self._in_spark.frame(table)

    @contextmanager
    def computed(
        self, given: DataFrame, compute: Compute, names: Collection[str], batch: BatchId
    ) -> Iterator[dict[str, TaskRows]]:
        """Have tasks compute the rows of the tables `names`, each from its partition of `given`."""
        work = partial(_computed, compute=compute, writers=task_writers(self.tables, names, batch))
        found = given.mapInArrow(work, from_arrow_schema(_FROM_TASKS)).persist(StorageLevel.DISK_ONLY)
        try:
            told = found.where("report IS NOT NULL").collect()
            reports = [(row["table"], json.loads(row["report"])) for row in told]
            yield {
                name: TaskRows.of((report for table, report in reports if table == name), found.where(_packed(name)))
                for name in names
            }
        finally:
            found.unpersist()

    def append(self, rows: Mapping[str, TaskRows], batch: BatchId) -> None:
        """Append rows to history tables, to all at the same time."""
        self._at_once([partial(append_from_tasks, self.tables, name, own, batch) for name, own in rows.items()])

    def replace(self, rows: Mapping[str, TaskRows], batch: BatchId, where: str) -> None:
        """Replace all rows of state tables that match the condition, of all at the same time, each in one commit."""
        self._at_once([partial(_replace, self.tables, name, own, batch, where) for name, own in rows.items()])

    def _at_once(self, steps: list[Step]) -> None:
        in_parallel(steps, inheritable_thread_target(self.spark))


@again_on_conflict
def append_from_tasks(
    tables: Store, name: str, rows: TaskRows, batch: BatchId, once: Transaction | None = None
) -> None:
    """Append rows to a history table, unless it has this batch, or the transaction `once`."""
    table = tables.open(name)
    transaction = once or transaction_of(table, batch)
    if rows.count and not is_made(table, transaction):
        table.append_from_tasks(rows, transaction)


@again_on_conflict
def _replace(tables: Store, name: str, rows: TaskRows, batch: BatchId, where: str) -> None:
    table = tables.open(name)
    transaction = transaction_of(table, batch)
    if not is_made(table, transaction):
        table.replace_from_tasks(where, rows, transaction)


def task_writers(tables: Store, names: Collection[str], batch: BatchId) -> dict[str, TaskWriter]:
    """Return a writer for each of the tables. All rows of a history get today as their day."""
    signature = batch.signature()
    return {name: tables.task_writer(name, signature) for name in names}


def _packed(name: str) -> Column:
    return (F.col("table") == name) & F.col("rows").isNotNull()


def _computed(
    batches: Iterator[pa.RecordBatch], compute: Compute, writers: Mapping[str, TaskWriter]
) -> Iterator[pa.RecordBatch]:
    for piece in compute(batches):
        for name, rows in piece.items():
            for packed in writers[name].write(rows):
                yield pa.RecordBatch.from_pylist([{"table": name, "rows": packed}], _FROM_TASKS)
    reports = [{"table": name, "report": json.dumps(writer.close())} for name, writer in writers.items()]
    yield pa.RecordBatch.from_pylist(reports, _FROM_TASKS)
