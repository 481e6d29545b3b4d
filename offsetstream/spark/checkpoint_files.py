"""Make Spark write the checkpoint files of a streaming query faster."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from pyspark.sql import SparkSession

from offsetstream.spark.session import has_class
from offsetstream.tables.session_settings import with_settings

_SETTING = "spark.sql.streaming.checkpointFileManagerClass"
_STREAMING = "org.apache.spark.sql.execution.streaming"
_CLASS = "FileSystemBasedCheckpointFileManager"
_CLASSES = (f"{_STREAMING}.checkpointing.{_CLASS}", f"{_STREAMING}.{_CLASS}")  # since Spark 4.1, and before 4.1


def fast_checkpoint_writes(spark: SparkSession, uri: str) -> AbstractContextManager[None]:
    """Return a context in which a new query writes a checkpoint, on a disk or on S3, with Hadoop's FileSystem API.

    With FileContext, Spark's default, Hadoop starts processes of `stat` and `chmod` for both files of each batch, or
    sends twice as many requests to S3. Both APIs are equally safe: they write a temporary file and rename it, after a
    check that the target does not exist. A setting of the user has precedence.
    """
    if not uri.startswith(("file:", "s3a:")) or spark.conf.get(_SETTING, None) is not None:
        return nullcontext()
    found = next((name for name in _CLASSES if has_class(spark, name)), None)
    return nullcontext() if found is None else with_settings(spark, {_SETTING: found})
