"""The job's own Spark session. Few imports: it starts before the job's modules are imported."""

from __future__ import annotations

from contextlib import AbstractContextManager

from pyspark import SparkContext
from pyspark.sql import SparkSession

from offsetstream.cluster.login import java_plugins
from offsetstream.errors import EnvironmentNotReadyError
from offsetstream.spark.local import LocalSpark
from offsetstream.stream.settings import JobSettings


def own_session(settings: JobSettings) -> AbstractContextManager[SparkSession]:
    """Start Spark in the background, and return its session as a context; Spark ends with the context.

    Raise EnvironmentNotReadyError if this process has a session already: ending it would hurt its owner.
    """
    if SparkContext._active_spark_context is not None:
        raise EnvironmentNotReadyError("Spark runs in this process already: pass its session, run(settings, spark)")
    plugins = java_plugins(settings.properties)
    return LocalSpark(settings.master, settings.conf, plugins, settings.log_format).running()
