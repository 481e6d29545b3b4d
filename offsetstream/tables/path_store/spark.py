"""Tables of a path store for Spark, which reads them if the data is too large for the driver. delta-rs commits."""

from __future__ import annotations

import delta.tables
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from offsetstream.embedded.hadoop import exists
from offsetstream.errors import EnvironmentNotReadyError, TablesError
from offsetstream.tables.location import in_hadoop
from offsetstream.tables.names import JOB_LEASE
from offsetstream.tables.path_store.store import PathStore
from offsetstream.tables.store import SparkTables

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

    def _require_same(self, name: str, place: str) -> None:
        message = _OTHER_STORE.format(place=place)
        try:
            # Not with SQL, which would query the session's catalog before the path.
            found = delta.tables.DeltaTable.forPath(self._spark, place).detail().select("id").head()
        except PySparkException as error:
            raise TablesError(message) from error
        if found is None or found["id"] != self._store.open(name).table_id:
            raise TablesError(message)
