"""How Spark writes the files of a streaming query's checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_SETTING = "spark.sql.streaming.checkpointFileManagerClass"
_CLASS = "FileSystemBasedCheckpointFileManager"
_STREAMING = "org.apache.spark.sql.execution.streaming"
_PACKAGES = (f"{_STREAMING}.checkpointing", _STREAMING)  # since Spark 4.1, and before


@contextmanager
def written_directly(spark: SparkSession, uri: str) -> Iterator[None]:
    """Have a query that starts within the context write its checkpoint by Hadoop's FileSystem, if it is a local one.

    By FileContext, Spark's default, Hadoop runs `stat` and `chmod` as processes again and again for each of a batch's
    two files. Both write a file beside and rename it, and look first whether there is one. A user's own setting stays.
    """
    found = _file_manager(spark) if uri.startswith("file:") and spark.conf.get(_SETTING, None) is None else None
    if found is None:
        yield
        return
    spark.conf.set(_SETTING, found)
    try:
        yield
    finally:
        spark.conf.unset(_SETTING)


def _file_manager(spark: SparkSession) -> str | None:
    """Return the class; None in a Spark that has no such."""
    java = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr]  # it is there while Spark is
    for package in _PACKAGES:
        try:
            java.Class.forName(f"{package}.{_CLASS}", False, java.Thread.currentThread().getContextClassLoader())
        except Py4JError:
            continue
        return f"{package}.{_CLASS}"
    return None
