"""What Spark does in the test's own process, for the message of a test that waited for it in vain."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

_OF_INTEREST = ("stream execution thread", "Executor task launch")
_FRAMES = 12  # the innermost


def what_spark_does(spark: SparkSession) -> str:
    """Return the states of the streaming queries, and where their threads, their tasks' and Python's stand."""
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
