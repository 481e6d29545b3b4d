"""A store as Hadoop sees it, in Spark's JVM: whether it reaches it, and what it lacks if it does not."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError

from offsetstream.errors import EnvironmentNotReadyError, first_line

# What Hadoop's own distribution, or the store's maker, has for it; PySpark brings none of them.
CONNECTORS = {
    "s3a": "org.apache.hadoop:hadoop-aws:{hadoop}",
    "abfs": "org.apache.hadoop:hadoop-azure:{hadoop}",
    "abfss": "org.apache.hadoop:hadoop-azure:{hadoop}",
    "gs": "com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.26",
}
_NO_CLASS = ("ClassNotFoundException", "No FileSystem for scheme", "NoClassDefFoundError")
_NO_CREDENTIALS = ("NoAuthWithAWSException", "NoAwsCredentialsException", "AccessDeniedException", "403")


def exists(spark_context: Any, uri: str) -> bool:
    """Tell whether there is a file or folder at the URI; EnvironmentNotReadyError, one line, if it cannot be asked."""
    java = spark_context._jvm
    try:
        path = java.org.apache.hadoop.fs.Path(uri)
        return bool(path.getFileSystem(spark_context._jsc.hadoopConfiguration()).exists(path))
    except Py4JJavaError as error:
        version = str(java.org.apache.hadoop.util.VersionInfo.getVersion())
        raise EnvironmentNotReadyError(why_unreached(uri, first_line(error.java_exception), version)) from error


def why_unreached(uri: str, said: str, hadoop: str) -> str:
    """Return what to do where Hadoop of a version cannot reach a URI, for which it `said` something."""
    scheme = uri.partition(":")[0]
    told = f"Spark cannot reach {uri} ({said})"
    if any(each in said for each in _NO_CLASS):
        if scheme == "s3":
            return f"{told}: Hadoop knows Amazon's store as s3a, so name it s3a://..."
        if scheme in CONNECTORS:
            coordinate = CONNECTORS[scheme].format(hadoop=hadoop)
            return f"{told}: give it the connector by --conf spark.jars.packages={coordinate} (docs/how-to/stores.md)"
        return f"{told}: give it the store's Hadoop connector by --conf spark.jars.packages=..., or mount the store"
    if any(each in said for each in _NO_CREDENTIALS):
        return (
            f"{told}: give it credentials with the right by --conf spark.hadoop.fs.{scheme}... (docs/how-to/stores.md)"
        )
    return f"{told}: what Hadoop needs for it is set by --conf spark.hadoop.fs.{scheme}... (docs/how-to/stores.md)"
