"""How Spark writes the files of a streaming query's checkpoint."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from pyspark.sql import SparkSession

from offsetstream.spark.session import has_class
from offsetstream.tables.session_settings import set_meanwhile

_SETTING = "spark.sql.streaming.checkpointFileManagerClass"
_STREAMING = "org.apache.spark.sql.execution.streaming"
_CLASS = "FileSystemBasedCheckpointFileManager"
_CLASSES = (f"{_STREAMING}.checkpointing.{_CLASS}", f"{_STREAMING}.{_CLASS}")  # since Spark 4.1, and before


def written_directly(spark: SparkSession, uri: str) -> AbstractContextManager[None]:
    """Have a query that starts within the context write its checkpoint by Hadoop's FileSystem, if it is a local one.

    By FileContext, Spark's default, Hadoop runs `stat` and `chmod` as processes again and again for each of a batch's
    two files. Both write a file beside and rename it, and look first whether there is one. A user's own setting stays.
    """
    if not uri.startswith("file:") or spark.conf.get(_SETTING, None) is not None:
        return nullcontext()
    found = next((name for name in _CLASSES if has_class(spark, name)), None)
    return nullcontext() if found is None else set_meanwhile(spark, {_SETTING: found})
