"""Spark sessions for writes to several tables in parallel.

MERGE can take the stamp of a commit only from its session, so each table is written in its own session.
"""

from __future__ import annotations

from pyspark.sql import SparkSession


class WriterSessions:
    """Sessions for writes, one per table, with the settings of the original session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._sessions: dict[str, SparkSession] = {}

    def of(self, table: str) -> SparkSession:
        """Return the table's session."""
        return self._sessions.get(table) or self._sessions.setdefault(table, copied_session(self._spark))


def copied_session(spark: SparkSession) -> SparkSession:
    """Return a new session with the settings of the given one."""
    # newSession() has the settings at the start, without later ones such as the time zone.
    session = spark.newSession()
    for name, value in spark.conf.getAll.items():
        if spark.conf.isModifiable(name) and session.conf.get(name, None) != value:
            session.conf.set(name, value)
    return session
