"""The Spark session of the job: started here, or given by whoever started it, with connectors and `settings`."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from offsetstream.cluster.databricks import is_databricks
from offsetstream.embedded.artifacts import classpath, resolve
from offsetstream.embedded.class_archive import archive_options
from offsetstream.embedded.java import java_home_for_spark
from offsetstream.errors import EnvironmentNotReadyError, first_line
from offsetstream.spark import worker_daemon
from offsetstream.spark.settings import (
    CORES,
    HIDDEN_NAMES,
    HIDDEN_OPTIONS,
    IDLE_BYTES,
    IDLE_CONSUMERS,
    JAVA_OPTIONS,
    LOCAL,
    LOG_FORMAT,
    PREFERRED,
    REQUIRED,
    STATIC,
    merged,
    spark_defaults,
    wanted,
)

# The connectors that go with each minor version of PySpark. The token provider of 4.1 is not in every registry; that
# of 4.0 does the same.
CONNECTORS = {
    "4.0": ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0", "io.delta:delta-spark_4.0_2.13:4.4.0"),
    "4.1": (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1",
        "io.delta:delta-spark_4.1_2.13:4.4.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    ),
    "4.2": ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", "io.delta:delta-spark_4.2_2.13:4.4.0"),
}
SPARK = f"spark-{pyspark.__version__}"  # the program whose classes are archived


def local_session(
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    plugins: Sequence[str] = (),
    log_format: str = "text",
) -> SparkSession:
    """Start the session of `offsetstream run`: Spark in this process's own JVM, its connectors resolved and cached.

    `conf` are the user's settings, which win over spark-defaults.conf, and this over ours; `plugins` are Maven
    coordinates that Kafka's client needs besides; `log_format` is that of Spark's errors, text or json. Temporary files
    are in a folder that goes with whichever of the two processes ends last. Raises EnvironmentNotReadyError where Java
    or a connector is missing.
    """
    folder = _temporary_folder()
    jars = resolve((*connectors(), *plugins))
    archived = archive_options(SPARK, jars)
    java_options = (JAVA_OPTIONS, f"-D{LOG_FORMAT}={log_format}", f"-Djava.io.tmpdir={folder}", *archived)
    places = (on_class_path(jars) if archived else {}) | {
        "spark.jars": ",".join(str(path) for path in jars),
        "spark.local.dir": folder,
        "spark.driver.extraJavaOptions": " ".join(java_options),
    }
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers' Python: ours, with its packages
    defaults = spark_defaults()
    given = defaults | dict(conf or {}) | ({"spark.master": master} if master else {})
    ours = LOCAL | STATIC | PREFERRED | places | _daemon(given.get("spark.master", LOCAL["spark.master"]))
    # What is set here is in the arguments of the JVM; what spark-defaults.conf says, secrets too, Spark reads itself.
    settings = {name: value for name, value in merged(ours, given).items() if defaults.get(name) != value}
    builder = SparkSession.builder.appName("offsetstream").config(map=settings | REQUIRED)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Of the JVM that only composes the command of the other one.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    logging.getLogger().addFilter(_is_no_lost_java)
    _starts_java.set()
    try:
        with _java_home(java_home_for_spark(Path(folder))):
            spark = _prepared(builder)
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise EnvironmentNotReadyError("Spark's Java process ended at its start: its own words are above") from error
    except Py4JJavaError as error:  # of a master or a setting that it does not know
        raise EnvironmentNotReadyError(f"Spark does not start: {first_line(error.java_exception)}") from error
    finally:
        _starts_java.clear()
    server: Any = spark.sparkContext._accumulatorServer
    server.handle_error = _say_nothing  # it would print a traceback when the JVM is gone
    java: Any = spark.sparkContext._jvm
    java.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(java.java.io.File(folder))
    return spark


def _daemon(master: str) -> dict[str, str]:
    """Have our daemon where its package is sure to be; another Python lacks it, as the job is to say by itself."""
    is_ours = master.startswith("local") and os.environ["PYSPARK_PYTHON"] == sys.executable
    return {"spark.python.daemon.module": worker_daemon.__name__} if is_ours else {}


def on_class_path(jars: Sequence[Path]) -> dict[str, str]:
    """Return the setting that puts the jars on the driver's own class path: Java archives what it finds there only.

    They come before Spark's there, so what Spark has in another version stays out: Spark's is taken, as by spark.jars.
    """
    of_spark = {_artifact(jar) for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    return {"spark.driver.extraClassPath": classpath([jar for jar in jars if _artifact(jar) not in of_spark])}


def _artifact(jar: Path) -> str:
    return re.split(r"-\d", jar.name, maxsplit=1)[0]


@contextmanager
def _java_home(home: Path | None) -> Iterator[None]:
    """Have JAVA_HOME for the JVM that starts meanwhile, where it is to have one; it is not there for longer."""
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    try:
        yield
    finally:
        if home is not None:
            del os.environ["JAVA_HOME"]


def _is_no_lost_java(record: logging.LogRecord) -> bool:
    """Leave out what py4j logs, with its traceback, when the JVM is gone: the job says it in one line."""
    return record.msg != "Exception while sending command."


def _say_nothing(*_: object) -> None:
    """Leave it to the job to say."""


def _temporary_folder() -> str:
    folder = tempfile.mkdtemp(prefix="offsetstream-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


_STDOUT, _STDERR = 1, 2
_starts_java = threading.Event()


def _be_java() -> None:
    # The JVM inherits it: a SIGTERM for the whole process group must not end it under our running batch. Only the JVM:
    # were it ignored here meanwhile, a SIGTERM during the start would be lost. And what it prints, as Delta's VACUUM
    # does, is for people: our own standard output is an answer that a program may read.
    if _starts_java.is_set():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.dup2(_STDERR, _STDOUT)


os.register_at_fork(after_in_child=_be_java)


@contextmanager
def ending(spark: SparkSession) -> Iterator[SparkSession]:
    """Stop the session at the context's end, also one whose JVM has gone: that error came before."""
    try:
        yield spark
    finally:
        with suppress(Py4JError, OSError):
            spark.stop()


def keep_few_consumers(spark: SparkSession, largest_batch: int) -> None:
    """Let Spark keep no more idle consumers than hold 128 MiB of batches of the topic's greatest size in bytes.

    Only before it has read anything, and only in this process: executors take it from their own configuration.
    """
    count = min(IDLE_CONSUMERS, max(CORES, IDLE_BYTES // (2 * largest_batch)))
    conf = spark.sparkContext._jvm.org.apache.spark.SparkEnv.get().conf()  # type: ignore[union-attr]
    conf.setIfMissing("spark.kafka.consumer.cache.capacity", str(count))


def submitted_session() -> SparkSession:
    """Return the session that spark-submit or Databricks gives, prepared for the job."""
    given = dict(SparkConf().getAll())
    settings = {name: value for name, value in merged(STATIC, given).items() if name in STATIC}
    return _prepared(SparkSession.builder.appName("offsetstream").config(map=settings))


@contextmanager
def launchers_session() -> Iterator[SparkSession]:
    """Give the session of the launcher; it ends with the context, but on Databricks, where it is the cluster's."""
    spark = submitted_session()
    with nullcontext(spark) if is_databricks() else ending(spark):
        yield spark


def _prepared(builder: SparkSession.Builder) -> SparkSession:
    """Return the session, prepared; a context is made in a thread of its own.

    In the main thread PySpark puts its own handler for SIGINT there, which asks the JVM while our call is under way:
    whoever pressed Ctrl-C meanwhile would see both fail.
    """
    if SparkContext._active_spark_context is not None or threading.current_thread() is not threading.main_thread():
        return prepare(builder.getOrCreate())
    with ThreadPoolExecutor(1, "start of Spark") as pool:
        spark = pool.submit(lambda: prepare(builder.getOrCreate())).result()
    # The JVM has a thread for each of ours, and the session that is active is one thread's.
    java: Any = spark.sparkContext._jvm
    java.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    return spark


def prepare(spark: SparkSession) -> SparkSession:
    """Set what the job needs and prefers in the session.

    Raises EnvironmentNotReadyError for a session of Spark Connect, and if a connector is missing.
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
        try:
            spark.sparkContext._jvm.java.lang.Class.forName(  # type: ignore[union-attr]
                name,
                False,
                spark.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader(),  # type: ignore[union-attr]
            )
        except Py4JError as error:
            raise EnvironmentNotReadyError(
                f"Spark has no {name.rsplit('.', 1)[-1]}: start it with --packages {','.join(connectors())}"
            ) from error
    return spark


def _require_own_jvm(spark: SparkSession) -> None:
    if not isinstance(spark, SparkSession):  # one of Spark Connect is of another class
        raise EnvironmentNotReadyError(
            "the job works in Spark's driver, which a session of Spark Connect does not reach: run it by spark-submit, "
            "or on dedicated compute of Databricks (docs/databricks.md)"
        )


@contextmanager
def prepared(spark: SparkSession) -> Iterator[SparkSession]:
    """Prepare a user's own session while the context lasts; afterwards its settings are as they were."""
    _require_own_jvm(spark)
    before = {name: spark.conf.get(name, None) for name in [*wanted(spark), HIDDEN_OPTIONS]}
    try:
        yield prepare(spark)
    finally:
        with suppress(Py4JError, OSError):  # a session that has gone
            for name, value in before.items():
                if value is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, value)


def connectors() -> tuple[str, ...]:
    """Return the Maven coordinates of the connectors for the installed PySpark."""
    minor = ".".join(pyspark.__version__.split(".")[:2])
    if minor not in CONNECTORS:
        raise EnvironmentNotReadyError(
            f"PySpark {pyspark.__version__} is not one of {', '.join(CONNECTORS)}: install one of these"
        )
    return CONNECTORS[minor]
