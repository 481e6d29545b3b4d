"""Runs the streaming job in the tests' process and reads its tables."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console

from offsetstream.progress import Progress
from offsetstream.stream.job import Job
from offsetstream.stream.settings import JobSettings
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import load_schema
from testkit.waiting import SECONDS, await_


class JobRunner:
    """One set of tables and checkpoints, with jobs that write to them.

    `may_fall_back`: whether Spark may read what cannot be read raw, as while leaders move.
    """

    may_fall_back = False

    def __init__(self, spark: SparkSession, bootstrap_server: str, folder: Path) -> None:
        self.tables = PathStore(str(folder / "tables"))
        self.settings = JobSettings(
            bootstrap_server=bootstrap_server, tables=self.tables.root, checkpoint=str(folder / "checkpoints")
        )
        self._spark = spark
        self.said = StringIO()

    def job(self, **changes: Any) -> Job:
        progress = Progress(Console(file=self.said, force_terminal=False, soft_wrap=True))
        return Job(replace(self.settings, **changes), nullcontext(self._spark), progress)

    def run_once(self) -> None:
        """Apply all records that are in the topic now."""
        self.job(once=True).run()
        assert self.may_fall_back or "is read by Spark, not raw" not in self.said.getvalue()

    @contextmanager
    def running(self, trigger: str = "0 seconds", **changes: Any) -> Iterator[Job]:
        """Stream while the context lasts; raise the job's error, if any, at its end."""
        job, errors = self.job(trigger=trigger, **changes), []

        def run() -> None:
            try:
                job.run()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield job
        finally:
            job.stop()
            thread.join(SECONDS)
        assert not thread.is_alive()
        if errors:
            raise errors[0]

    def await_(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds. The AssertionError after a timeout has the jobs' output and Spark's state."""
        await_(condition, lambda: self.said.getvalue() + spark_state(self._spark))

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return all rows of a table, sorted; all columns if none is named."""
        names = list(columns or load_schema(table).column_names)
        found = Lookup(self.tables).rows(table, names)
        return sorted((tuple(row[name] for name in names) for row in found), key=repr)

    def values(self, table: str, column: str) -> set[Any]:
        """Return the distinct values of a column."""
        return {value for (value,) in self.rows(table, column)}

    def count(self, table: str) -> int:
        return len(self.rows(table, load_schema(table).column_names[0]))


_OF_INTEREST = ("stream execution thread", "Executor task launch")
_FRAMES = 12  # the innermost ones of a stack


def spark_state(spark: SparkSession) -> str:
    """Return the states of the streaming queries, and the stacks of their threads, their tasks and Python."""
    queries = [f"query {query.name}: {query.status}, {query.lastProgress}" for query in spark.streams.active]
    return "\n".join(["", *queries, *_java_threads(spark), *_python_threads()])


def _java_threads(spark: SparkSession) -> Iterator[str]:
    java: Any = spark.sparkContext._jvm
    for thread in java.java.lang.management.ManagementFactory.getThreadMXBean().dumpAllThreads(True, True):
        if thread.getThreadName().startswith(_OF_INTEREST):
            frames = [f"    {frame.toString()}" for frame in list(thread.getStackTrace())[:_FRAMES]]
            state = f"{thread.getThreadState()} {thread.getLockName()} of {thread.getLockOwnerName()}"
            yield "\n".join([f"Java: {thread.getThreadName()}: {state}", *frames])


def _python_threads() -> Iterator[str]:
    for number, frame in sys._current_frames().items():
        yield f"Python: thread {number}\n{''.join(traceback.format_stack(frame)[-3:])}"
