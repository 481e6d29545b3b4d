"""Check that Hadoop in Spark's JVM can reach a store, and say what to do if it cannot."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError

from offsetstream.errors import EnvironmentNotReadyError, first_line

# The connectors of Hadoop or of the store's vendor. PySpark does not include them.
CONNECTORS = {
    "s3a": "org.apache.hadoop:hadoop-aws:{hadoop}",
    "abfs": "org.apache.hadoop:hadoop-azure:{hadoop}",
    "abfss": "org.apache.hadoop:hadoop-azure:{hadoop}",
    "gs": "com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.26",
}
_NO_CLASS = ("ClassNotFoundException", "No FileSystem for scheme", "NoClassDefFoundError")
_NO_CREDENTIALS = ("NoAuthWithAWSException", "NoAwsCredentialsException", "AccessDeniedException", "403")


def exists(spark_context: Any, uri: str) -> bool:
    """Return whether the URI has a file or folder. Raises EnvironmentNotReadyError if Hadoop cannot reach it."""
    java = spark_context._jvm
    try:
        path = java.org.apache.hadoop.fs.Path(uri)
        return bool(path.getFileSystem(spark_context._jsc.hadoopConfiguration()).exists(path))
    except Py4JJavaError as error:
        version = str(java.org.apache.hadoop.util.VersionInfo.getVersion())
        raise EnvironmentNotReadyError(unreachable_message(uri, first_line(error.java_exception), version)) from error


def unreachable_message(uri: str, said: str, hadoop: str) -> str:
    """Return an error text with advice for a URI that Hadoop cannot reach.

    `said` is the message of Hadoop, and `hadoop` its version.
    """
    scheme = uri.partition(":")[0]
    problem = f"Spark cannot reach {uri} ({said})"
    if any(each in said for each in _NO_CLASS):
        if scheme == "s3":
            return f"{problem}. Use s3a://..., which is Hadoop's name for Amazon S3"
        if scheme in CONNECTORS:
            coordinate = CONNECTORS[scheme].format(hadoop=hadoop)
            return f"{problem}. Add the connector with --conf spark.jars.packages={coordinate} (docs/how-to/stores.md)"
        return f"{problem}. Add the store's Hadoop connector with --conf spark.jars.packages=..., or mount the store"
    if any(each in said for each in _NO_CREDENTIALS):
        return (
            f"{problem}. Set credentials that may access it with --conf spark.hadoop.fs.{scheme}... "
            "(docs/how-to/stores.md)"
        )
    return f"{problem}. Configure Hadoop for this store with --conf spark.hadoop.fs.{scheme}... (docs/how-to/stores.md)"
