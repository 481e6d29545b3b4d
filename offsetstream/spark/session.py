"""The job's Spark session, with connectors and `settings`: our own, or that of spark-submit or Databricks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from offsetstream.errors import EnvironmentNotReadyError
from offsetstream.settings.places import is_databricks
from offsetstream.spark.settings import (
    CORES,
    HIDDEN_NAMES,
    HIDDEN_OPTIONS,
    IDLE_BYTES,
    IDLE_CONSUMERS,
    LEAST_HEAP,
    LEAST_MEMORY,
    REQUIRED,
    STATIC,
    merged,
    wanted,
)

# The newest connectors for each minor version of PySpark. The token provider may be older, because some registries lack
# it for 4.0.4 and 4.1.3. Spark 4.0 itself uses Kafka's clients 3.9.0, which have a known vulnerability
# (CVE-2025-27817).
_CLIENTS = "org.apache.kafka:kafka-clients:3.9.2"
_SOURCE = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
CONNECTORS = {
    "4.0": (f"{_SOURCE}:4.0.4", f"{_TOKENS}:4.0.0", "io.delta:delta-spark_4.0_2.13:4.4.0", _CLIENTS),
    "4.1": (f"{_SOURCE}:4.1.3", f"{_TOKENS}:4.1.1", "io.delta:delta-spark_4.1_2.13:4.4.0", _CLIENTS),
    "4.2": (f"{_SOURCE}:4.2.0", f"{_TOKENS}:4.2.0", "io.delta:delta-spark_4.2_2.13:4.4.0", _CLIENTS),
}

# What our tasks import.
PACKAGES = ("offsetstream", "deltalake", "numpy", "pandas", "pyarrow")
_ADVICE = (
    "Give them offsetstream's environment (PYSPARK_PYTHON, or --archives with spark.pyspark.python). If only "
    "offsetstream is missing, pass its wheel with --py-files, renamed to end in .zip"
)
_CHECKPOINT_WRITER = "spark.sql.streaming.checkpointFileManagerClass"
_STREAMING = "org.apache.spark.sql.execution.streaming"
_CLASS = "FileSystemBasedCheckpointFileManager"
# Since Spark 4.1, and before.
_CHECKPOINT_WRITERS = (f"{_STREAMING}.checkpointing.{_CLASS}", f"{_STREAMING}.{_CLASS}")
_LAUNCHERS_PORT = "PYSPARK_GATEWAY_PORT"  # set by spark-submit


@contextmanager
def ending(spark: SparkSession) -> Iterator[SparkSession]:
    """Stop the session at the end of the context. Ignore a lost JVM, which has raised an error before."""
    try:
        yield spark
    finally:
        with suppress(Py4JError, OSError):
            spark.stop()


def limit_idle_consumers(spark: SparkSession, largest_batch: int) -> None:
    """Limit Spark's idle consumers, so that they keep at most 128 MiB for batches of `largest_batch` bytes.

    Works only before Spark has read anything, and only in this process: executors use their own configuration.
    """
    count = min(IDLE_CONSUMERS, max(CORES, IDLE_BYTES // (2 * largest_batch)))
    conf = spark.sparkContext._jvm.org.apache.spark.SparkEnv.get().conf()  # type: ignore[union-attr]
    conf.setIfMissing("spark.kafka.consumer.cache.capacity", str(count))


def java_process() -> subprocess.Popen[bytes] | None:
    """Return Spark's JVM if this process launched it."""
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return process


def restore_folders(spark: SparkSession) -> None:
    """Create the driver's folders for temporary files again, where a cleaner of /tmp has removed them.

    Spark creates each folder once, and never checks again whether it is still there.
    """
    context: Any = spark.sparkContext
    java = context._jvm
    disk = java.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
    blocks = [Path(folder.getPath()) for folder in disk.localDirs()]
    names = [f"{number:02x}" for number in range(int(context.getConf().get("spark.diskStore.subDirectories", "64")))]
    folders = [
        Path(java.java.lang.System.getProperty("java.io.tmpdir")),
        Path(java.org.apache.spark.SparkFiles.getRootDirectory()),
        Path(context._temp_dir),
        *(folder / name for folder in blocks for name in names),
    ]
    with suppress(OSError):  # for example, a read-only file system: the next failure says so
        for folder in folders:
            for missing in [each for each in (*reversed(folder.parents), folder) if not each.exists()]:
                missing.mkdir(mode=0o700)


def submitted_session() -> SparkSession:
    """Return the session of spark-submit or Databricks, prepared for the job.

    Raises EnvironmentNotReadyError if Spark cannot start with the memory that spark-submit gave to Java.
    """
    given = dict(SparkConf().getAll())
    settings = {name: value for name, value in merged(STATIC, given).items() if name in STATIC}
    if _LAUNCHERS_PORT in os.environ and SparkContext._active_spark_context is None:
        SparkContext._ensure_initialized()
        java: Any = SparkContext._jvm
        memory = java.java.lang.Runtime.getRuntime().maxMemory()
        if memory < LEAST_HEAP:
            raise EnvironmentNotReadyError(
                f"Spark's driver has {memory >> 20} MiB of memory, and Spark does not start with less than "
                f"{LEAST_HEAP >> 20} MiB. Start it with --driver-memory {LEAST_MEMORY} or more"
            )
    return prepared_from(SparkSession.builder.appName("offsetstream").config(map=settings))


@contextmanager
def launchers_session() -> Iterator[SparkSession]:
    """Yield the session of spark-submit or Databricks. Stop it at the end, except on Databricks, which owns it."""
    spark = submitted_session()
    with nullcontext(spark) if is_databricks() else ending(spark):
        yield spark


def prepared_from(builder: SparkSession.Builder) -> SparkSession:
    """Return the builder's session, prepared. A new Spark context is created in another thread.

    In the main thread, PySpark would install its own SIGINT handler, which calls the JVM. With Ctrl-C during one of our
    calls, both would fail.
    """
    if SparkContext._active_spark_context is not None or threading.current_thread() is not threading.main_thread():
        return prepare(builder.getOrCreate())
    with ThreadPoolExecutor(1, "start of Spark") as pool:
        spark = pool.submit(lambda: prepare(builder.getOrCreate())).result()
    # The active session belongs to one thread of the JVM, and each of our threads has its own there.
    java: Any = spark.sparkContext._jvm
    java.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    return spark


def prepare(spark: SparkSession) -> SparkSession:
    """Apply the job's settings to the session, and check the connectors.

    Raises EnvironmentNotReadyError for a Spark Connect session, and if a connector is missing.
    """
    _require_own_jvm(spark)
    given = {name for name, _ in spark.sparkContext.getConf().getAll()}
    for name, value in wanted(spark).items():
        if name in REQUIRED or name not in given:
            spark.conf.set(name, value)
    hidden = spark.conf.get(HIDDEN_OPTIONS) or ""
    if HIDDEN_NAMES not in hidden:
        spark.conf.set(HIDDEN_OPTIONS, f"{hidden}|{HIDDEN_NAMES}" if hidden else HIDDEN_NAMES)
    for name in ("org.apache.spark.sql.kafka010.KafkaSourceProvider", "io.delta.tables.DeltaTable"):
        if not has_class(spark, name):
            raise EnvironmentNotReadyError(
                f"Spark has no {name.rsplit('.', 1)[-1]}. Start it with --packages {','.join(connectors())}"
            )
    return spark


def has_class(spark: SparkSession, name: str) -> bool:
    """Return whether Spark's driver finds the Java class, including those of its packages."""
    java = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr]  # never None while Spark runs
    try:
        java.Class.forName(name, False, java.Thread.currentThread().getContextClassLoader())
    except Py4JError:
        return False
    return True


def _require_own_jvm(spark: SparkSession) -> None:
    if not isinstance(spark, SparkSession):  # Spark Connect has another class
        raise EnvironmentNotReadyError(
            "The job needs Spark's driver, which Spark Connect cannot reach. Run it with spark-submit, "
            "or on dedicated compute of Databricks (docs/how-to/databricks.md)"
        )


@contextmanager
def prepared(spark: SparkSession) -> Iterator[SparkSession]:
    """Prepare the user's session within the context, and restore its settings afterwards."""
    _require_own_jvm(spark)
    before = current_settings(spark, [*wanted(spark), HIDDEN_OPTIONS])
    try:
        yield prepare(spark)
    finally:
        with suppress(Py4JError, OSError):  # the session has ended
            restore_settings(spark, before)


def connectors() -> tuple[str, ...]:
    """Return the Maven coordinates of the connectors for the installed PySpark."""
    minor = ".".join(pyspark.__version__.split(".")[:2])
    if minor not in CONNECTORS:
        raise EnvironmentNotReadyError(
            f"PySpark {pyspark.__version__} is not supported. Install one of {', '.join(CONNECTORS)}"
        )
    return CONNECTORS[minor]


def require_packages(spark: SparkSession) -> None:
    """Raise EnvironmentNotReadyError if the executors' Python does not start or lacks packages that tasks import.

    Skips the check for local Spark whose tasks run this process's Python.
    """
    context = spark.sparkContext
    if context._jsc.sc().isLocal() and context.pythonExec == sys.executable:
        return
    tasks = context.defaultParallelism
    # Use only functions of Python itself, since the executors may lack our package.
    packages = context.parallelize(PACKAGES * tasks, tasks)
    try:
        found = zip(PACKAGES * tasks, packages.map(find_spec).map(bool).collect(), strict=True)
    except Py4JJavaError as error:
        raise EnvironmentNotReadyError(
            f"The executors cannot run the driver's Python ({_reason(error)}). {_ADVICE}"
        ) from error
    if missing := sorted({package for package, is_there in found if not is_there}):
        raise EnvironmentNotReadyError(f"The executors' Python lacks {', '.join(missing)}. {_ADVICE}")


def _reason(error: Py4JJavaError) -> str:
    """Return the innermost cause, which is the message of Python or of the operating system."""
    lines = [line.strip() for line in str(error).splitlines() if "Error" in line or "Exception" in line]
    return (lines or ["no message"])[-1].removeprefix("Caused by: ")


def fast_checkpoint_writes(spark: SparkSession, uri: str) -> AbstractContextManager[None]:
    """Return a context in which a new query writes a checkpoint, on a disk or on S3, with Hadoop's FileSystem API.

    With FileContext, Spark's default, Hadoop starts processes of `stat` and `chmod` for both files of each batch, or
    sends twice as many requests to S3. Both APIs are equally safe: they write a temporary file and rename it, after a
    check that the target does not exist. A setting of the user has precedence.
    """
    if not uri.startswith(("file:", "s3a:")) or spark.conf.get(_CHECKPOINT_WRITER, None) is not None:
        return nullcontext()
    found = next((name for name in _CHECKPOINT_WRITERS if has_class(spark, name)), None)
    return nullcontext() if found is None else with_settings(spark, {_CHECKPOINT_WRITER: found})


def bulk_writes(spark: SparkSession) -> AbstractContextManager[None]:
    """Return a context without optimized writes and auto-compaction: the few large files of a load do not need them."""
    names = ("spark.databricks.delta.optimizeWrite.enabled", "spark.databricks.delta.autoCompact.enabled")
    return with_settings(spark, dict.fromkeys(names, "false"))


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set these settings in the session while the context runs."""
    before = current_settings(spark, settings)
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        restore_settings(spark, before)


def current_settings(spark: SparkSession, names: Iterable[str]) -> dict[str, str | None]:
    """Return the session's values of these settings; None for one that is not set."""
    return {name: spark.conf.get(name, None) for name in names}


def restore_settings(spark: SparkSession, settings: Mapping[str, str | None]) -> None:
    """Restore the values that `current_settings` returned."""
    for name, value in settings.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)
