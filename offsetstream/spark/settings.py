"""The job's Spark settings, each with its reason.

The user's settings (`--conf` of `run` and of spark-submit, or `spark-defaults.conf`) win over all except `REQUIRED`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import javaproperties
from pyspark.sql import SparkSession

from offsetstream.errors import EnvironmentNotReadyError

# The job would be wrong without these. The user cannot change them.
REQUIRED = {
    # Spark's newer offset fetching silently reads nothing from an internal topic.
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true",
    "spark.sql.session.timeZone": "UTC",
}
# Spark hides options by name, but not all of ours. Its log, UI and event log contain plans with options.
HIDDEN_NAMES = "jaas|[.]ssl[.]"
HIDDEN_OPTIONS = "spark.sql.redaction.options.regex"
# Set before the session starts: Delta's SQL.
STATIC: dict[str, Any] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
CORES = os.cpu_count() or 2
PREFERRED = {
    # Delta's log is small. The default spreads it over 50 tasks.
    "spark.databricks.delta.snapshotPartitions": "2",
    # The codec works on columns, so a batch of 10,000 records (Spark's default) costs nearly as much as a larger one.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    # A query that waits for offsets of a silent cluster cannot be interrupted. Without a limit, no stop would end it.
    "spark.sql.streaming.stopTimeout": "5s",
    # One file for each append, even if the user has a limit for other tables.
    "spark.sql.files.maxRecordsPerFile": "0",
}
# Limit memory in bytes where Spark counts records, since the topic may have records of megabytes.
BOUNDED = {
    "spark.sql.execution.arrow.maxBytesPerBatch": "32m",
    # By default, a file's writer keeps at least 100 records, and its reader 4,096.
    "parquet.block.size.row.check.min": "1",
    "parquet.page.size.row.check.min": "1",
    "parquet.block.size": str(32 << 20),
    "spark.sql.parquet.enableVectorizedReader": "false",
}
# An idle consumer of Spark keeps the last batch that it fetched, and its records.
IDLE_CONSUMERS, IDLE_BYTES = 64, 128 << 20
# For `run`, which starts its own Spark.
LOCAL = {
    "spark.app.name": "offsetstream",
    "spark.master": "local[*]",
    # Enough for a load of any size, since it reads parts of five million records (settings.MAX_OFFSETS_AT_ONCE).
    "spark.driver.memory": "2g",
    # Large records need memory that Spark does not count: Kafka client, row buffers, Parquet writers.
    "spark.memory.fraction": "0.4",
    # A task's result goes to the driver at once, not by Spark's block manager: local Spark cannot register that again
    # after a shuffle file was lost, and then loses every larger result.
    "spark.task.maxDirectResultSize": "1g",
    "spark.rpc.message.maxSize": "1024",  # MiB; the other limit of a direct result
    "spark.kafka.consumer.fetchedData.cache.timeout": "1s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "1s",
    # No port is open to the network.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.redaction.regex": f"(?i)secret|password|token|access[.]?key|{HIDDEN_NAMES}",
}
# Spark starts with this much memory, 1.5 times what it reserves, or more. Java's parallel collector does not count one
# of its survivor spaces, which is a ninth of spark.driver.memory at most.
LEAST_HEAP = 450 << 20
LEAST_MEMORY = f"{-(-LEAST_HEAP * 9 // 8 >> 20)}m"
LEAST_FILES = 1024  # the job on 50 partitions has 600 open
_MEMORY = "spark.driver.memory"
_MEMORY_TEXT = re.compile(r"(\d{1,12})([kmgt]?)", re.IGNORECASE)  # Java's notation: Spark passes it on unchanged
# Lists: the user's values are added to ours.
_LISTS = {"spark.jars": ",", "spark.sql.extensions": ",", "spark.redaction.regex": "|"}
LOG_FORMAT = "offsetstream.log.format"  # a Java system property that log4j2.properties reads
JAVA_OPTIONS = " ".join(
    (
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
        # On a few cores, a load is a tenth faster than with G1, whose helper threads need CPU time.
        "-XX:+UseParallelGC",
        # Spark's classes alone exceed 21 MiB, the default that triggers a first full garbage collection.
        "-XX:MetaspaceSize=256m",
        # Java would give a third of its memory to new objects, and never give it back. Batches need little.
        "-XX:MaxNewSize=128m",
        # Ten times the default: on a few cores, the optimising compiler costs more than it saves during start and load.
        # Code that runs for millions of records, or for hours, still gets optimised.
        "-XX:Tier4InvocationThreshold=50000",
        "-XX:Tier4MinInvocationThreshold=6000",
        "-XX:Tier4CompileThreshold=150000",
        "-XX:Tier4BackEdgeThreshold=400000",
    )
)


def wanted(spark: SparkSession) -> dict[str, str]:
    """Return the settings that the job applies to a session, where the user has none. REQUIRED always applies."""
    # State and batches are small, and each task costs 0.1 s. Nearly all of Spark's default of 200 would be empty.
    shuffles = {"spark.sql.shuffle.partitions": str(max(2, spark.sparkContext.defaultParallelism))}
    return PREFERRED | shuffles | BOUNDED | REQUIRED


def spark_defaults() -> dict[str, str]:
    """Return the settings of the user's spark-defaults.conf. Spark itself would let settings in code win over them."""
    from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415 - of PySpark by pip; runtimes may have none

    home: str = _find_spark_home()  # type: ignore[no-untyped-call]  # PySpark has no type for it
    folder = os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf"
    file = Path(folder) / "spark-defaults.conf"
    if not file.exists():
        return {}
    found: dict[str, str] = javaproperties.loads(file.read_text("utf-8"))  # the format that Spark uses
    return {name: value.strip() for name, value in found.items()}


def require_variables() -> None:
    """Raise EnvironmentNotReadyError for variables of other Sparks with which ours would not start."""
    home, arguments = os.environ.get("SPARK_HOME"), os.environ.get("PYSPARK_SUBMIT_ARGS")
    if home and not Path(home, "bin", "spark-submit").is_file():
        raise EnvironmentNotReadyError(f"SPARK_HOME is {home}, which has no bin/spark-submit: correct or unset it")
    if arguments is not None and "pyspark-shell" not in arguments.split():
        raise EnvironmentNotReadyError(
            f"PYSPARK_SUBMIT_ARGS is {arguments!r}: it must end with pyspark-shell, or unset it"
        )


def require_memory(given: Mapping[str, str]) -> None:
    """Raise EnvironmentNotReadyError if our own Spark could not start with its memory, wherever it is set.

    `given` are the user's settings. spark-defaults.conf is weaker, and PYSPARK_SUBMIT_ARGS is stronger.
    """
    settings = LOCAL | spark_defaults() | dict(given)
    sources = dict.fromkeys(given, "") | dict.fromkeys(submit_arguments(), " in PYSPARK_SUBMIT_ARGS")
    text = str((settings | submit_arguments())[_MEMORY])
    source = sources.get(_MEMORY, " in spark-defaults.conf")
    if _bytes(text) < _bytes(LEAST_MEMORY):
        raise EnvironmentNotReadyError(
            f"{_MEMORY} is {text!r}{source}, and Spark does not start with less than {LEAST_MEMORY}. Set "
            f"{_MEMORY}={LEAST_MEMORY} or more (default: {LOCAL[_MEMORY]})"
        )


def require_files() -> None:
    """Raise EnvironmentNotReadyError if this machine lets our own Spark open too few files."""
    try:
        import resource  # noqa: PLC0415 - Windows has none
    except ImportError:
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)  # Java raises its own limit to this
    if most != resource.RLIM_INFINITY and most < LEAST_FILES:
        raise EnvironmentNotReadyError(
            f"a process may open {most} files here, and Spark needs more than {LEAST_FILES}: raise the hard limit "
            "(ulimit -Hn; LimitNOFILE of systemd)"
        )


def _bytes(memory: str) -> int:
    """Return the bytes of a size such as 2g; 0 if Java does not accept it."""
    match = _MEMORY_TEXT.fullmatch(memory.strip())
    return int(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " ") if match else 0


def submit_arguments() -> dict[str, str]:
    """Return the settings in PYSPARK_SUBMIT_ARGS, which PySpark appends to ours when it launches Java."""
    try:
        words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    except ValueError:  # PySpark reports it
        return {}
    found: dict[str, str] = {}
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if not equals:
            value = words[at + 1] if at + 1 < len(words) else ""
        if option == "--driver-memory":
            found[_MEMORY] = value
        elif option in {"--conf", "-c"} and "=" in value:
            name, _, text = value.partition("=")
            found[name.strip()] = text
    return found


def merged(ours: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return our settings merged with the given ones, which win. Lists are joined."""
    joined = {
        name: f"{ours[name]}{mark}{given[name]}" for name, mark in _LISTS.items() if name in ours and name in given
    }
    return {**ours, **given, **joined}
