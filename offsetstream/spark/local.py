"""Spark in this process's own JVM, which begins in a thread: it takes seconds in which others have things to do."""

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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from offsetstream.embedded.artifacts import classpath, resolve
from offsetstream.embedded.class_archive import archive_options
from offsetstream.embedded.java import java_home_for_spark
from offsetstream.errors import EnvironmentNotReadyError, first_line
from offsetstream.spark import worker_daemon
from offsetstream.spark.session import connectors, ending, prepared_by
from offsetstream.spark.settings import (
    JAVA_OPTIONS,
    LOCAL,
    LOG_FORMAT,
    PREFERRED,
    REQUIRED,
    STATIC,
    merged,
    spark_defaults,
)

SPARK = f"spark-{pyspark.__version__}"  # the program whose classes are archived
_CLASS_PATH = "spark.driver.extraClassPath"


def local_session(
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    plugins: Sequence[str] = (),
    log_format: str = "text",
) -> SparkSession:
    """Start the session that a `LocalSpark` gives, at once."""
    return LocalSpark(master, conf, plugins, log_format).session()


class LocalSpark:
    """Spark of `offsetstream run`, in this process's own JVM, its connectors resolved and cached.

    The JVM is launched in a thread as soon as this is made; it ends with the process, wanted or not. `conf` are the
    user's settings, which win over spark-defaults.conf, and this over ours; `plugins` are Maven coordinates that
    Kafka's client needs besides; `log_format` is that of Spark's errors, text or json. Temporary files are in a folder
    that goes with whichever of the two processes ends last.
    """

    def __init__(
        self,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        plugins: Sequence[str] = (),
        log_format: str = "text",
    ) -> None:
        self._folder = _temporary_folder()
        pool = ThreadPoolExecutor(1, "launch of Java")
        self._settings: Future[Mapping[str, str]] = pool.submit(
            _launch, self._folder, master, dict(conf or {}), plugins, log_format
        )
        pool.shutdown(wait=False)  # the thread ends when it is done

    @contextmanager
    def running(self) -> Iterator[SparkSession]:
        """Give the session, which ends with the context."""
        with ending(self.session()) as spark:
            yield spark

    def session(self) -> SparkSession:
        """Start the session, once; EnvironmentNotReadyError where Java or a connector is missing."""
        try:
            spark = prepared_by(SparkSession.builder.config(map=dict(self._settings.result())))
        except PySparkRuntimeError as error:
            if error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            raise EnvironmentNotReadyError(
                "Spark's Java process ended at its start: its own words are above"
            ) from error
        except Py4JJavaError as error:  # of a master or a setting that it does not know
            raise EnvironmentNotReadyError(f"Spark does not start: {first_line(error.java_exception)}") from error
        server: Any = spark.sparkContext._accumulatorServer
        server.handle_error = _say_nothing  # it would print a traceback when the JVM is gone
        java: Any = spark.sparkContext._jvm
        java.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(java.java.io.File(self._folder))
        return spark


def _launch(
    folder: str, master: str | None, conf: Mapping[str, str], plugins: Sequence[str], log_format: str
) -> Mapping[str, str]:
    """Launch the JVM, where this process has none yet; return what is still to be set of the session that it is for."""
    jars = resolve((*connectors(), *plugins))
    java_options = (JAVA_OPTIONS, f"-D{LOG_FORMAT}={log_format}", f"-Djava.io.tmpdir={folder}")
    places = {
        "spark.local.dir": folder,
        "spark.driver.extraJavaOptions": " ".join((*java_options, *archive_options(SPARK, jars))),
    }
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers' Python: ours, with its packages
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Of the JVM that only composes the command of the other one.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    logging.getLogger().addFilter(_is_no_lost_java)
    launches = SparkContext._gateway is None
    given = dict(conf) | ({"spark.master": master} if master else {})
    settings = settings_of(given, places, jars, launches=launches)
    _starts_java.set()
    try:
        with _java_home(java_home_for_spark(Path(folder))):
            SparkContext._ensure_initialized(conf=SparkConf().setAll(list(settings.items())))
    finally:
        _starts_java.clear()
    return {} if launches else settings  # a JVM that was launched with them has them


def settings_of(
    given: Mapping[str, str], places: Mapping[str, str], jars: Sequence[Path], *, launches: bool
) -> dict[str, str]:
    """Return the settings of a session with these jars: those `given` by the user, and ours, as `places`, beside them.

    `launches`: whether its JVM is yet to come.
    """
    defaults = spark_defaults()
    given = defaults | dict(given)
    master = given.get("spark.master", LOCAL["spark.master"])
    ours = LOCAL | STATIC | PREFERRED | dict(places) | on_class_path(jars) | _daemon(master)
    # Executors get them as copies, which takes half a second: those of `local[*]` are the driver.
    if not (launches and master.partition("[")[0] == "local" and _CLASS_PATH not in given):
        ours["spark.jars"] = ",".join(map(str, jars))
    # What is set here is in the arguments of the JVM; what spark-defaults.conf says, secrets too, Spark reads itself.
    settings = {name: value for name, value in merged(ours, given).items() if defaults.get(name) != value}
    return {**settings, **REQUIRED}


def _daemon(master: str) -> dict[str, str]:
    """Have our daemon where its package is sure to be; another Python lacks it, as the job is to say by itself."""
    is_ours = master.startswith("local") and os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable
    return {"spark.python.daemon.module": worker_daemon.__name__} if is_ours else {}


def on_class_path(jars: Sequence[Path]) -> dict[str, str]:
    """Return the setting that puts the jars on the driver's own class path: Java archives what it finds there only.

    They come before Spark's there, so what Spark has in another version stays out: Spark's is taken, as by spark.jars.
    """
    of_spark = {_artifact(jar) for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    return {_CLASS_PATH: classpath([jar for jar in jars if _artifact(jar) not in of_spark])}


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
