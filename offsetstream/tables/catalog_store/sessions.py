"""Sessions for Spark's writes to several tables at once.

What stamps a commit MERGE takes from its session only, so each table is written in a session of its own.
"""

from __future__ import annotations

from pyspark.sql import SparkSession


class WriterSessions:
    """Sessions for writes, one per table, alike in their settings to the session they come from."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._sessions: dict[str, SparkSession] = {}

    def of(self, table: str) -> SparkSession:
        """Return the table's session."""
        return self._sessions.get(table) or self._sessions.setdefault(table, alike(self._spark))


def alike(spark: SparkSession) -> SparkSession:
    """Return a new session with the settings of the given one."""
    # newSession() has the settings of the start, not those set since, the time zone among them.
    session = spark.newSession()
    for name, value in spark.conf.getAll.items():
        if spark.conf.isModifiable(name) and session.conf.get(name, None) != value:
            session.conf.set(name, value)
    return session
