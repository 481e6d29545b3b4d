"""Sessions for Spark's writes to several tables at once.

An append takes its application transaction as options; MERGE takes it from its session only, so each table's merges run
in a session of their own, and in a thread of their own beside the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_APP_ID = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"


class WriterSessions:
    """Sessions for merges, one per table, alike in their settings to the session they come from."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._sessions: dict[str, SparkSession] = {}

    @contextmanager
    def transaction(self, table: str, app: str, version: int) -> Iterator[SparkSession]:
        """Give the table's session, in which a merge is done once, however often it is repeated."""
        session = self._sessions.get(table) or self._sessions.setdefault(table, alike(self._spark))
        session.conf.set(_APP_ID, app)
        session.conf.set(_VERSION, str(version))
        try:
            yield session
        finally:
            session.conf.unset(_APP_ID)
            session.conf.unset(_VERSION)


def alike(spark: SparkSession) -> SparkSession:
    """Return a new session with the settings of the given one."""
    # newSession() has the settings of the start, not those set since, the time zone among them.
    session = spark.newSession()
    for name, value in spark.conf.getAll.items():
        if spark.conf.isModifiable(name) and session.conf.get(name, None) != value:
            session.conf.set(name, value)
    return session
