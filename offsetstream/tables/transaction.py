"""Writes that can be repeated: Delta's application transactions, one per table and step (rule 8).

Delta skips a write whose (app id, version) it has seen. An append takes them as options; MERGE takes them from its
session only, so each table's merges run in a session of their own, and in a thread of their own beside the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from offsetstream.tables.schema import HISTORY_DAY

_APP_ID = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"


@dataclass(frozen=True)
class BatchId:
    """A micro-batch of a checkpoint; ``batch_id`` is -1 for a load, which is done anew rather than skipped."""

    checkpoint_id: int
    batch_id: int

    @property
    def version(self) -> int:
        """The version of the batch's transactions: greater in a later checkpoint, whatever its batch ids."""
        return (self.checkpoint_id << 32) | (self.batch_id + 1)

    @property
    def is_load(self) -> bool:
        """Whether this is a load, not a batch of the stream."""
        return self.batch_id < 0

    def signature(self, day: date) -> dict[str, Any]:
        """Return the columns of a history's row that say who wrote it, and on which day."""
        return {"checkpoint_id": self.checkpoint_id, "batch_id": self.batch_id, HISTORY_DAY: day}


def app_id(table: str) -> str:
    """Return the id under which the batches that the table has are counted."""
    return f"offsetstream/{table}/batch"


def load_app_id(table: str) -> str:
    """Return the id under which writes to the table that belong to no batch are counted."""
    return f"offsetstream/{table}/load"


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


def in_parallel(spark: SparkSession, steps: Sequence[Callable[[], None]]) -> None:
    """Run the steps side by side and wait for all of them; the first error is raised once all have ended."""
    if len(steps) < 2:  # noqa: PLR2004
        for step in steps:
            step()
        return
    with ThreadPoolExecutor(len(steps)) as pool:
        futures = [pool.submit(inheritable_thread_target(spark)(step)) for step in steps]
    for future in futures:
        future.result()
