"""Spark sessions for writes to several tables in parallel.

MERGE can take the stamp of a commit only from its session, and only a session says which version it committed last. So
each table has sessions of its own for writes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_LAST_VERSION = "spark.databricks.delta.lastCommitVersionInSession"  # Delta sets it after each commit


class WriterSession:
    """A session in which one thread after the other writes to one table."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = copied_session(spark)
        self._turn = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Keep other threads from writing in this session while the context runs."""
        with self._turn:
            self.spark.conf.unset(_LAST_VERSION)
            yield

    @property
    def committed_version(self) -> int | None:
        """The version of the last commit in this turn; None if there was none, or if Delta does not say it."""
        version = self.spark.conf.get(_LAST_VERSION, None)
        return int(version) if version is not None and version.isdecimal() else None


class WriterSessions:
    """Sessions for writes, one for each table and kind of commit, with the settings of the original session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._sessions: dict[tuple[str, str], WriterSession] = {}
        self._lock = threading.Lock()

    def of(self, table: str, kind: str) -> WriterSession:
        """Return the session for commits of a kind to a table."""
        with self._lock:
            if (table, kind) not in self._sessions:
                self._sessions[table, kind] = WriterSession(self._spark)
            return self._sessions[table, kind]


def copied_session(spark: SparkSession) -> SparkSession:
    """Return a new session with the settings of the given one."""
    # newSession() has the settings at the start, without later ones such as the time zone.
    session = spark.newSession()
    for name, value in spark.conf.getAll.items():
        if spark.conf.isModifiable(name) and session.conf.get(name, None) != value:
            session.conf.set(name, value)
    return session
