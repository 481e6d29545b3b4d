"""Tables at paths for Spark: what is too large for the driver, and the OPTIMIZE of files.

Files are compacted by Spark's OPTIMIZE: that of delta-rs (1.6) does not see another OPTIMIZE that ended meanwhile, and
then both results stay in the table: each row twice (seen).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import delta.tables
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from offsetstream.errors import ConflictError
from offsetstream.tables.files import Crowd
from offsetstream.tables.merge import DELETED, Merge
from offsetstream.tables.path_store.store import PathStore
from offsetstream.tables.schema import HISTORY_DAY
from offsetstream.tables.spark_sessions import WriterSessions, alike
from offsetstream.tables.store import SparkTables, Transaction


class PathSpark(SparkTables):
    """The tables of a path store for a Spark session."""

    def __init__(self, store: PathStore, spark: SparkSession) -> None:
        self._store = store
        self._spark = spark
        self._sessions = WriterSessions(spark)

    def frame(self, name: str) -> DataFrame:
        """Return the table's present rows."""
        return self._spark.read.format("delta").load(self._store.table(name))

    def append(self, name: str, rows: DataFrame, transaction: Transaction) -> None:
        """Append rows that have all of our columns; skipped if the transaction was made before."""
        writer = rows.write.format("delta").mode("append")
        writer = writer.option("txnAppId", transaction.app_id).option("txnVersion", transaction.version)
        with _conflicts_told():
            writer.save(self._store.table(name))

    def merge(self, source: DataFrame, merge: Merge, transaction: Transaction) -> None:
        """Merge a DataFrame with our columns and `_deleted`; skipped if the transaction was made before."""
        with self._sessions.transaction(merge.schema.name, *transaction) as session, _conflicts_told():
            if merge.replace_where is not None:
                self._replace(source, merge, merge.replace_where, transaction)
                return
            target = delta.tables.DeltaTable.forPath(session, self._store.table(merge.schema.name)).alias("target")
            merging = target.merge(source.alias("source"), merge.same_key).whenMatchedDelete(merge.deletes)
            merging = merging.whenMatchedUpdate(merge.updates, merge.values)
            merging.whenNotMatchedInsert(merge.inserts, merge.values).execute()

    def compact(self, name: str, crowd: Crowd) -> None:
        """Put the files together by OPTIMIZE."""
        for setting in ("minFileSize", "maxFileSize"):
            self._optimizer.conf.set(f"spark.databricks.delta.optimize.{setting}", str(crowd.target_bytes))
        optimize = delta.tables.DeltaTable.forPath(self._optimizer, self._store.table(name)).optimize()
        if crowd.day is not None:
            optimize = optimize.where(f"{HISTORY_DAY} = DATE '{crowd.day}'")
        with _conflicts_told():
            optimize.executeCompaction()

    @cached_property
    def _optimizer(self) -> SparkSession:
        return alike(self._spark)

    def _replace(self, source: DataFrame, merge: Merge, replace_where: str, transaction: Transaction) -> None:
        rows, key = source.where(f"NOT {DELETED}").drop(DELETED), list(merge.schema.key)
        stored = self.frame(merge.schema.name)
        users = [name for name in stored.columns if name not in merge.schema.column_names]
        if users:
            kept = stored.where(replace_where).select(*key, *users).dropDuplicates(key).alias("kept")
            same = [F.col(f"source.{name}").eqNullSafe(F.col(f"kept.{name}")) for name in key]
            columns = [*(f"source.{name}" for name in merge.schema.column_names), *(f"kept.`{name}`" for name in users)]
            rows = rows.alias("source").join(kept, same, "left").select(*columns)
        writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", replace_where)
        writer = writer.option("txnAppId", transaction.app_id).option("txnVersion", transaction.version)
        writer.save(self._store.table(merge.schema.name))


# By the exceptions' names: what they print has frames of ConcurrentHashMap and the like.
_CONFLICT = re.compile(r"DELTA_CONCURRENT|Concurrent\w*Exception")


@contextmanager
def _conflicts_told() -> Iterator[None]:
    """Raise ConflictError where Spark's write failed since another one was quicker."""
    try:
        yield
    except Exception as error:  # of whatever kind: Delta's Python package knows not all of its own conflicts
        if not is_conflict(error):
            raise
        raise ConflictError(str(error)) from error


def is_conflict(error: BaseException) -> bool:
    """Tell whether an error of Spark's is a conflict of commits."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "DeltaConcurrentModificationException" in kinds:
        return True
    said = str(error)
    return bool(kinds & {"PySparkException", "Py4JJavaError"}) and _CONFLICT.search(said) is not None
