"""Tables of a path store for Spark, for data too large for the driver: tasks read and write files, delta-rs commits.

So only delta-rs commits to a table (`file_commits.py`), and a write always goes to the table that was opened. Spark
itself could resolve the path in another default file system and create a new table there.
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

_SOURCE, _STORED = "_in_source", "_in_table"  # set in a join's row if it comes from this side, else null
_OTHER_STORE = (
    "Spark finds another table at {place} than the driver, or none: configure the same store for both, for Spark with "
    "--conf spark.hadoop.fs... and for the driver in the environment"
)


class PathSpark(SparkTables):
    """The tables of a path store for a Spark session."""

    def __init__(self, store: PathStore, spark: SparkSession) -> None:
        self._store = store
        self._spark = spark
        self._known: set[str] = set()

    def require_reachable(self) -> None:
        """Raise EnvironmentNotReadyError if Hadoop cannot reach the tables that delta-rs has created."""
        place = in_hadoop(self._store.table(JOB_LEASE))
        if not exists(self._spark.sparkContext, f"{place}/_delta_log"):
            raise EnvironmentNotReadyError(_OTHER_STORE.format(place=place))

    def frame(self, name: str) -> DataFrame:
        """Return the table's current rows; TablesError if Spark finds another table in this place."""
        place = in_hadoop(self._store.table(name))
        if name not in self._known:
            self._require_same(name, place)
            self._known.add(name)
        return self._spark.read.format("delta").load(place)

    def append(self, name: str, rows: DataFrame, transaction: Transaction) -> None:
        """Append rows with all of our columns; skip this if the table already has the transaction."""
        table = self._store.open(name)
        if not is_made(table, transaction):
            table.append_files(written_by_tasks(rows, table.where, table.arrow), transaction)

    def merge(self, source: DataFrame, merge: Merge, transaction: Transaction) -> None:
        """Merge rows: Spark joins them with the stored rows, and rewrites the complete table."""
        # Open the table before Spark reads it, so that a commit in between makes ours fail.
        table = self._store.open(merge.schema.name)
        if not is_made(table, transaction):
            merged = _replaced if merge.replace_where is not None else _merged
            rows = merged(self.frame(table.name), source, merge)
            put_in_place(table, written_by_tasks(rows, table.where, table.arrow), [transaction])

    def _require_same(self, name: str, place: str) -> None:
        message = _OTHER_STORE.format(place=place)
        try:
            # Not with SQL, which would query the session's catalog before the path.
            found = delta.tables.DeltaTable.forPath(self._spark, place).detail().select("id").head()
        except PySparkException as error:
            raise TablesError(message) from error
        if found is None or found["id"] != self._store.open(name).table_id:
            raise TablesError(message)


def _merged(stored: DataFrame, source: DataFrame, merge: Merge) -> DataFrame:
    """Return the table's rows after the merge."""
    target = stored.withColumn(_STORED, F.lit(True)).alias("target")
    joined = target.join(source.withColumn(_SOURCE, F.lit(True)).alias("source"), F.expr(merge.same_key), "full")
    is_stored, is_given = F.col(_STORED).isNotNull(), F.col(_SOURCE).isNotNull()
    gone = is_given & F.when(is_stored, F.expr(merge.deletes)).otherwise(F.col(f"source.{DELETED}"))
    comes = is_given & (~is_stored | F.coalesce(F.expr(merge.updates), F.lit(False)))
    return joined.where(~F.coalesce(gone, F.lit(False))).select(*_columns(stored, merge, comes))


def _replaced(stored: DataFrame, source: DataFrame, merge: Merge) -> DataFrame:
    """Return the table's rows after the source's rows have replaced those that match the condition."""
    matches = F.coalesce(F.expr(str(merge.replace_where)), F.lit(False))
    return stored.where(~matches).unionByName(replacing_rows(stored, source, merge))


def _columns(stored: DataFrame, merge: Merge, comes: Column) -> list[Column]:
    """Return the columns: the source's value if `comes` is true, else the stored one; a user's column always stays."""
    ours = merge.schema.column_names
    return [
        F.when(comes, F.col(f"source.{name}")).otherwise(F.col(f"target.{name}")).alias(name)
        if name in ours
        else F.col(f"target.{quoted(name)}").alias(name)
        for name in stored.columns
    ]
