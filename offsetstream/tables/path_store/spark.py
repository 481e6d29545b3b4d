"""Tables of a path store for Spark, for data too large for the driver: tasks read and write files, delta-rs commits.

So only delta-rs commits to a table (`file_commits.py`), and a write always goes to the table that was opened. Spark
itself could resolve the path in another default file system and create a new table there.
"""

from __future__ import annotations

import delta.tables
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from offsetstream.embedded.hadoop import exists
from offsetstream.errors import EnvironmentNotReadyError, TablesError
from offsetstream.tables.location import in_hadoop
from offsetstream.tables.names import JOB_LEASE
from offsetstream.tables.path_store.file_commits import put_in_place
from offsetstream.tables.path_store.store import PathStore
from offsetstream.tables.path_store.task_files import written_by_tasks
from offsetstream.tables.schema import load_schema
from offsetstream.tables.spark_rows import replacing_rows
from offsetstream.tables.store import SparkTables, Transaction
from offsetstream.tables.transaction import is_made

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

    def replace(self, name: str, rows: DataFrame, where: str, transaction: Transaction) -> None:
        """Replace all rows that match the condition: tasks write the complete table again."""
        # Open the table before Spark reads it, so that a commit in between makes ours fail.
        table = self._store.open(name)
        if not is_made(table, transaction):
            stored, is_gone = self.frame(name), F.coalesce(F.expr(where), F.lit(False))
            kept = stored.where(~is_gone).unionByName(replacing_rows(stored, rows, where, load_schema(name)))
            put_in_place(table, written_by_tasks(kept, table.where, table.arrow), [transaction])

    def _require_same(self, name: str, place: str) -> None:
        message = _OTHER_STORE.format(place=place)
        try:
            # Not with SQL, which would query the session's catalog before the path.
            found = delta.tables.DeltaTable.forPath(self._spark, place).detail().select("id").head()
        except PySparkException as error:
            raise TablesError(message) from error
        if found is None or found["id"] != self._store.open(name).table_id:
            raise TablesError(message)
