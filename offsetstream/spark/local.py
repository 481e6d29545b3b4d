"""Local Spark in its own JVM. It starts in a thread, because that takes seconds and we have other things to do."""

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
from typing import Any, NoReturn

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from offsetstream.embedded.artifacts import classpath, resolve
from offsetstream.embedded.java import archive_options, java_home_for_spark
from offsetstream.errors import EnvironmentNotReadyError, OffsetstreamError, first_line
from offsetstream.spark import worker_daemon
from offsetstream.spark.session import connectors, ending, java_process, prepared_from
from offsetstream.spark.settings import (
    JAVA_OPTIONS,
    LOCAL,
    LOG_FORMAT,
    PREFERRED,
    REQUIRED,
    STATIC,
    merged,
    require_files,
    require_memory,
    require_variables,
    spark_defaults,
)

SPARK = f"spark-{pyspark.__version__}"  # the program name of its class archive
_folders: list[str] = []  # the temporary folders of this process
_CLASS_PATH = "spark.driver.extraClassPath"


def local_session(
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    plugins: Sequence[str] = (),
    log_format: str = "text",
) -> SparkSession:
    """Start a session of `LocalSpark`, and wait for it."""
    return LocalSpark(master, conf, plugins, log_format).session()


class LocalSpark:
    """The local Spark of `offsetstream run`, with its connectors resolved and cached.

    The constructor starts the JVM in a thread. The JVM ends with this process. `conf` are the user's settings: they win
    over spark-defaults.conf, which wins over ours. `plugins` are Maven coordinates of plugins for Kafka's client.
    `log_format` is the format of Spark's errors: text or json. The folder of temporary files is deleted when the last
    of both processes ends. The constructor raises EnvironmentNotReadyError if Spark cannot start with its memory,
    the environment or the number of files that may be open.
    """

    def __init__(
        self,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        plugins: Sequence[str] = (),
        log_format: str = "text",
    ) -> None:
        if SparkContext._gateway is None:  # else Java runs already, with its own memory
            require_memory(conf or {})
            require_variables()
            require_files()
        # Also for the workers. Arrow's own pool keeps what it gave back for a while, and a quarter more at a batch.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        self._folder = _temporary_folder()
        pool = ThreadPoolExecutor(1, "launch of Java")
        self._settings: Future[Mapping[str, str]] = pool.submit(
            _launch, self._folder, master, dict(conf or {}), plugins, log_format
        )
        pool.shutdown(wait=False)  # the thread ends after the launch

    @contextmanager
    def running(self) -> Iterator[SparkSession]:
        """Yield the session, which stops at the end of the context."""
        with ending(self.session()) as spark:
            yield spark

    def session(self) -> SparkSession:
        """Start the session (call it once). Raises EnvironmentNotReadyError if Java or a connector is missing."""
        try:
            spark = prepared_from(SparkSession.builder.config(map=dict(self._settings.result())))
        except PySparkRuntimeError as error:
            if error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            raise EnvironmentNotReadyError(
                "Spark's Java process ended while it started. See its output above"
            ) from error
        except Py4JJavaError as error:  # for example, an unknown master or an invalid setting
            raise EnvironmentNotReadyError(f"Spark does not start: {first_line(error.java_exception)}") from error
        server: Any = spark.sparkContext._accumulatorServer
        server.handle_error = _ignore_error  # it would print a traceback after the end of the JVM
        java: Any = spark.sparkContext._jvm
        java.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(java.java.io.File(self._folder))
        return spark


def _launch(
    folder: str, master: str | None, conf: Mapping[str, str], plugins: Sequence[str], log_format: str
) -> Mapping[str, str]:
    """Launch the JVM if this process has none yet. Return the settings that the session still needs."""
    jars = resolve((*connectors(), *plugins))
    java_options = (JAVA_OPTIONS, f"-D{LOG_FORMAT}={log_format}", f"-Djava.io.tmpdir={folder}")
    dynamic = {
        "spark.local.dir": folder,
        "spark.driver.extraJavaOptions": " ".join((*java_options, *archive_options(SPARK, jars))),
    }
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need our Python with its packages
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # For the short-lived JVM that only builds the command line of the other one.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    logging.getLogger().addFilter(_is_not_lost_java)
    launches = SparkContext._gateway is None
    given = dict(conf) | ({"spark.master": master} if master else {})
    settings = settings_of(given, dynamic, jars, launches=launches)
    _starts_java.set()
    try:
        with _java_home(java_home_for_spark(Path(folder))):
            SparkContext._ensure_initialized(conf=SparkConf().setAll(list(settings.items())))
    finally:
        _starts_java.clear()
    return {} if launches else settings  # a new JVM already has them


def settings_of(
    given: Mapping[str, str], dynamic: Mapping[str, str], jars: Sequence[Path], *, launches: bool
) -> dict[str, str]:
    """Return the settings of a session with these jars: the user's (`given`) and ours.

    `dynamic` are those of ours that depend on this process. `launches` says that the JVM is not started yet.
    """
    defaults = spark_defaults()
    given = defaults | dict(given)
    master = given.get("spark.master", LOCAL["spark.master"])
    ours = LOCAL | STATIC | PREFERRED | dict(dynamic) | on_class_path(jars) | _daemon(master)
    # Copying jars to executors takes half a second. With `local[*]`, the driver is the executor and has them already.
    if not (launches and master.partition("[")[0] == "local" and _CLASS_PATH not in given):
        ours["spark.jars"] = ",".join(map(str, jars))
    # These settings become arguments of the JVM. Leave out those of spark-defaults.conf, which may be secret and which
    # Spark reads itself.
    settings = {name: value for name, value in merged(ours, given).items() if defaults.get(name) != value}
    return {**settings, **REQUIRED}


def _daemon(master: str) -> dict[str, str]:
    """Use our daemon only if the workers' Python is ours. Another Python may lack it, which the job reports later."""
    is_ours = master.startswith("local") and os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable
    return {"spark.python.daemon.module": worker_daemon.__name__} if is_ours else {}


def on_class_path(jars: Sequence[Path]) -> dict[str, str]:
    """Return the setting that puts the jars on the driver's class path: Java archives only classes from there.

    These jars come before Spark's. So leave out artifacts that Spark itself has: its version wins, as with spark.jars.
    """
    spark_artifacts = {_artifact(jar) for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    return {_CLASS_PATH: classpath([jar for jar in jars if _artifact(jar) not in spark_artifacts])}


def _artifact(jar: Path) -> str:
    return re.split(r"-\d", jar.name, maxsplit=1)[0]


@contextmanager
def _java_home(home: Path | None) -> Iterator[None]:
    """Set JAVA_HOME within the context (None: unchanged)."""
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    try:
        yield
    finally:
        if home is not None:
            del os.environ["JAVA_HOME"]


def _is_not_lost_java(record: logging.LogRecord) -> bool:
    """Filter py4j's traceback after the end of the JVM: the job reports it in one line."""
    return record.msg != "Exception while sending command."


def _ignore_error(*_: object) -> None:
    """Print nothing: the job reports the error."""


def _temporary_folder() -> str:
    folder = tempfile.mkdtemp(prefix="offsetstream-spark-")
    _folders.append(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def end_at_once() -> NoReturn:
    """End this process with exit code 1, and its Java, without waiting for any thread of either."""
    process = java_process()
    if process is not None:
        process.kill()
        process.wait()
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(OffsetstreamError.exit_code)


_STDOUT, _STDERR = 1, 2
_starts_java = threading.Event()


def _prepare_java_process() -> None:
    # Ignore SIGTERM in the JVM only: a SIGTERM for the process group must not end the JVM during a batch, and this
    # process must not miss a SIGTERM while Spark starts. Send the JVM's output, such as that of Delta's VACUUM, to
    # standard error: programs may read our standard output.
    if _starts_java.is_set():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.dup2(_STDERR, _STDOUT)


os.register_at_fork(after_in_child=_prepare_java_process)
