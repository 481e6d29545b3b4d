"""Tables at paths for Spark, for what is too large for the driver: its tasks read and write files, delta-rs commits.

So a table has one committer (`file_commits.py`), and no write can go to another place than the one that was opened:
Spark takes a path for one of its default file system, and would make a new table there.
"""

from __future__ import annotations

import delta.tables
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from offsetstream.embedded.hadoop import exists
from offsetstream.errors import EnvironmentNotReadyError, TablesError
from offsetstream.tables.location import in_hadoop
from offsetstream.tables.merge import DELETED, Merge
from offsetstream.tables.names import JOB_LEASE
from offsetstream.tables.path_store.file_commits import put_in_place
from offsetstream.tables.path_store.store import PathStore
from offsetstream.tables.path_store.task_files import written_by_tasks
from offsetstream.tables.spark_rows import replacing_rows
from offsetstream.tables.sql import quoted
from offsetstream.tables.store import SparkTables, Transaction
from offsetstream.tables.transaction import is_made

_SOURCE, _STORED = "_in_source", "_in_table"  # which side of a join a row is from; null: not from this one
_OTHER_STORE = (
    "Spark finds another table at {place} than the driver, or none: give both the same store, by the settings of "
    "Hadoop (--conf spark.hadoop.fs...) and the environment"
)


class PathSpark(SparkTables):
    """The tables of a path store for a Spark session."""

    def __init__(self, store: PathStore, spark: SparkSession) -> None:
        self._store = store
        self._spark = spark
        self._known: set[str] = set()

    def require_reachable(self) -> None:
        """Raise EnvironmentNotReadyError if Hadoop cannot reach the tables that delta-rs has made."""
        place = in_hadoop(self._store.table(JOB_LEASE))
        if not exists(self._spark.sparkContext, f"{place}/_delta_log"):
            raise EnvironmentNotReadyError(_OTHER_STORE.format(place=place))

    def frame(self, name: str) -> DataFrame:
        """Return the table's present rows; TablesError if Spark finds another table at this place."""
        place = in_hadoop(self._store.table(name))
        if name not in self._known:
            self._require_same(name, place)
            self._known.add(name)
        return self._spark.read.format("delta").load(place)

    def append(self, name: str, rows: DataFrame, transaction: Transaction) -> None:
        """Append rows that have all of our columns; skipped if the transaction was made before."""
        table = self._store.open(name)
        if not is_made(table, transaction):
            table.append_files(written_by_tasks(rows, table.where, table.arrow), transaction)

    def merge(self, source: DataFrame, merge: Merge, transaction: Transaction) -> None:
        """Merge rows: Spark joins them with those of the table, all of which are written anew."""
        # Opened before Spark reads: a commit between the two makes ours fail.
        table = self._store.open(merge.schema.name)
        if not is_made(table, transaction):
            merged = _replaced if merge.replace_where is not None else _merged
            rows = merged(self.frame(table.name), source, merge)
            put_in_place(table, written_by_tasks(rows, table.where, table.arrow), [transaction])

    def _require_same(self, name: str, place: str) -> None:
        told = _OTHER_STORE.format(place=place)
        try:
            # Not in SQL, which asks a catalog, if the session has one, before it looks at the path.
            found = delta.tables.DeltaTable.forPath(self._spark, place).detail().select("id").head()
        except PySparkException as error:
            raise TablesError(told) from error
        if found is None or found["id"] != self._store.open(name).table_id:
            raise TablesError(told)


def _merged(stored: DataFrame, source: DataFrame, merge: Merge) -> DataFrame:
    """Return what the table has after the merge."""
    target = stored.withColumn(_STORED, F.lit(True)).alias("target")
    joined = target.join(source.withColumn(_SOURCE, F.lit(True)).alias("source"), F.expr(merge.same_key), "full")
    is_stored, is_given = F.col(_STORED).isNotNull(), F.col(_SOURCE).isNotNull()
    gone = is_given & F.when(is_stored, F.expr(merge.deletes)).otherwise(F.col(f"source.{DELETED}"))
    comes = is_given & (~is_stored | F.coalesce(F.expr(merge.updates), F.lit(False)))
    return joined.where(~F.coalesce(gone, F.lit(False))).select(*_columns(stored, merge, comes))


def _replaced(stored: DataFrame, source: DataFrame, merge: Merge) -> DataFrame:
    """Return what the table has when the source's rows replace those that fulfil the condition."""
    fulfils = F.coalesce(F.expr(str(merge.replace_where)), F.lit(False))
    return stored.where(~fulfils).unionByName(replacing_rows(stored, source, merge))


def _columns(stored: DataFrame, merge: Merge, comes: Column) -> list[Column]:
    """Return each column, the source's where its row comes; a user's as it is."""
    ours = merge.schema.column_names
    return [
        F.when(comes, F.col(f"source.{name}")).otherwise(F.col(f"target.{name}")).alias(name)
        if name in ours
        else F.col(f"target.{quoted(name)}").alias(name)
        for name in stored.columns
    ]
