"""What the job sets in Spark, each with its reason.

A user's own settings win over all but `REQUIRED`, wherever they are made: by `--conf` of `run` and of spark-submit, or
in `spark-defaults.conf`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import javaproperties
from pyspark.sql import SparkSession

# Without these the job would be wrong; they are set whatever the user says.
REQUIRED = {
    # Spark's newer offset fetching reads nothing, silently, from an internal topic.
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true",
    "spark.sql.session.timeZone": "UTC",
}
# Spark hides options by their names, and of ours only some: plans are in its log, its UI and its event log.
HIDDEN_NAMES = "jaas|[.]ssl[.]"
HIDDEN_OPTIONS = "spark.sql.redaction.options.regex"
# Before the session starts: Delta's SQL.
STATIC: dict[str, Any] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
CORES = os.cpu_count() or 2
PREFERRED = {
    # Delta's own log has few entries; by default it is spread over 50 tasks.
    "spark.databricks.delta.snapshotPartitions": "2",
    # The codec works on whole columns: its cost of a batch is nearly the same for 10,000 records, Spark's default.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    # A query that asks a silent cluster for its offsets cannot be interrupted: without a limit no stop would end it.
    "spark.sql.streaming.stopTimeout": "5s",
    # One file for each append, whatever the user's default is for tables of another kind.
    "spark.sql.files.maxRecordsPerFile": "0",
}
# What bounds memory by bytes where Spark counts records: anyone may write records of megabytes into the topic.
BOUNDED = {
    "spark.sql.execution.arrow.maxBytesPerBatch": "32m",
    # Else a file's writer keeps at least a hundred records, and its reader 4,096.
    "parquet.block.size.row.check.min": "1",
    "parquet.page.size.row.check.min": "1",
    "parquet.block.size": str(32 << 20),
    "spark.sql.parquet.enableVectorizedReader": "false",
}
# An idle consumer of Spark's keeps the last batch that it fetched, and the records that it made of it.
IDLE_CONSUMERS, IDLE_BYTES = 64, 128 << 20
# Of `run`, whose Spark is in its own process.
LOCAL = {
    "spark.app.name": "offsetstream",
    "spark.master": "local[*]",
    # Enough for a load of any size: it is read in parts of five million records (settings.MAX_OFFSETS_AT_ONCE).
    "spark.driver.memory": "2g",
    # Records of megabytes need room where Spark does not count: the Kafka client, buffers of rows, Parquet's writers.
    "spark.memory.fraction": "0.4",
    "spark.kafka.consumer.fetchedData.cache.timeout": "1s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "1s",
    # Nothing listens to the network.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.redaction.regex": f"(?i)secret|password|token|access[.]?key|{HIDDEN_NAMES}",
}
# Where a user names more than ours, both are needed.
_LISTS = {"spark.jars": ",", "spark.sql.extensions": ",", "spark.redaction.regex": "|"}
LOG_FORMAT = "offsetstream.log.format"  # a property of Java's, which log4j2.properties reads
JAVA_OPTIONS = " ".join(
    (
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
        # On a few cores it takes a tenth of the time off a load that G1's helper threads would take.
        "-XX:+UseParallelGC",
        # Spark alone loads classes of more than the 21 MiB at which Java would first collect all garbage.
        "-XX:MetaspaceSize=256m",
        # Ten times Java's own: on a few cores, the second compiler takes from a start and a load more than it gives
        # them. What runs for each of millions of records, or for hours, gets there all the same.
        "-XX:Tier4InvocationThreshold=50000",
        "-XX:Tier4MinInvocationThreshold=6000",
        "-XX:Tier4CompileThreshold=150000",
        "-XX:Tier4BackEdgeThreshold=400000",
    )
)


def wanted(spark: SparkSession) -> dict[str, str]:
    """Return what the job sets in a session, but for what the user has set; REQUIRED always."""
    # State and batches are small, and each task costs a tenth of a second: of Spark's 200, nearly all would be empty.
    shuffles = {"spark.sql.shuffle.partitions": str(max(2, spark.sparkContext.defaultParallelism))}
    return PREFERRED | shuffles | BOUNDED | REQUIRED


def spark_defaults() -> dict[str, str]:
    """Return the settings of the user's spark-defaults.conf: what is set in code, as ours, would win over it."""
    from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415 - of PySpark by pip; runtimes may have none

    home: str = _find_spark_home()  # type: ignore[no-untyped-call]  # PySpark has none for it
    folder = os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf"
    file = Path(folder) / "spark-defaults.conf"
    if not file.exists():
        return {}
    found: dict[str, str] = javaproperties.loads(file.read_text("utf-8"))  # the format that Spark reads it in
    return {name: value.strip() for name, value in found.items()}


def merged(ours: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return our settings and the given ones, which win; lists are joined."""
    joined = {
        name: f"{ours[name]}{mark}{given[name]}" for name, mark in _LISTS.items() if name in ours and name in given
    }
    return {**ours, **given, **joined}
