"""The job's own Spark: as few imports as there can be, since it begins before those of the job."""

from __future__ import annotations

from contextlib import AbstractContextManager

from pyspark import SparkContext
from pyspark.sql import SparkSession

from offsetstream.cluster.msk import java_plugins
from offsetstream.errors import EnvironmentNotReadyError
from offsetstream.spark.local import LocalSpark
from offsetstream.stream.settings import JobSettings


def own_session(settings: JobSettings) -> AbstractContextManager[SparkSession]:
    """Start Spark for the job alone, beside what comes before it is wanted; it ends with the context.

    Raises EnvironmentNotReadyError where the process has a session: that is somebody's, who would lose it.
    """
    if SparkContext._active_spark_context is not None:
        raise EnvironmentNotReadyError("Spark runs in this process already: give its session, by run(settings, spark)")
    plugins = java_plugins(settings.properties)
    return LocalSpark(settings.master, settings.conf, plugins, settings.log_format).running()
