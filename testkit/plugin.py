"""The kit's pytest plugin: it sets up the process, shortens failures to a page, and ends processes that tests left.

Pytest inherits much from its parent: ignored signals (`nohup make test`, `make test &` in a script), proxies, and
settings of Spark, Java and offsetstream. Tests, and all processes that they start, must not depend on these.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
import time
from collections.abc import Generator
from contextlib import suppress
from functools import partialmethod
from inspect import signature
from typing import Any

import pytest
from _pytest.reports import TestReport
from click.testing import CliRunner, Result

from testkit.processes import page, started_with
from testkit.waiting import PATIENCE

_RUN = "OFFSETSTREAM_TEST_RUN"  # marks each process that a test session starts: the session's pid
_OPEN_FILES = 4096  # enough for a broker whose fifty offsets partitions roll at once, Spark, and their clients
_GRACE_SECONDS = 20.0 * PATIENCE  # a JVM ends a moment after the process that it served

# Variables that change the behaviour of Spark, Java, Python, Kafka or offsetstream.
_FORGOTTEN = re.compile(
    r"OFFSETSTREAM_(?!TEST_|CACHE$|IVY_SETTINGS$)|SPARK_|PYSPARK_|HADOOP_|HIVE_|KAFKA_|DATABRICKS_|AWS_|AZURE_|GOOGLE_"
    r"|PYTHON(WARNINGS|STARTUP|UNBUFFERED|DONTWRITEBYTECODE)$"
    r"|(_JAVA_OPTIONS|JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH|COLUMNS|LINES|NO_COLOR|FORCE_COLOR)$"
    r"|PY_COLORS$|PYTEST_ADDOPTS$"
)
_LOOPBACK = "127.0.0.1,localhost"


def settle() -> None:
    """Give this process, and all that it starts, the signals, limits and environment that tests expect."""
    # Children inherit an ignored signal, but not a handler. With one that does nothing, only this process ignores it.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignore)
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # else each child's exit code would be 0
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for name in [name for name in os.environ if _FORGOTTEN.match(name)]:
        del os.environ[name]
    sys.dont_write_bytecode = False  # without bytecode our commands take twice as long to start
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), _LOOPBACK]))
    _keep_errors_apart()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # pytest_configure reports a limit that stays too low
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, _OPEN_FILES), max(hard, _OPEN_FILES)))


def _keep_errors_apart() -> None:
    """Make click before 8.2 like later versions: its runner separates stderr, and `output` has both."""
    if "mix_stderr" in signature(CliRunner.__init__).parameters:
        setattr(CliRunner, "__init__", partialmethod(CliRunner.__init__, mix_stderr=False))  # noqa: B010
        setattr(Result, "output", property(lambda result: result.stdout + result.stderr))  # noqa: B010


def _ignore(_signal: int, _frame: object) -> None:
    """Do nothing."""


settle()


def pytest_configure(config: pytest.Config) -> None:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed < _OPEN_FILES:
        raise pytest.UsageError(f"brokers open many files, and only {allowed} are allowed: ulimit -n {_OPEN_FILES}")
    if hasattr(config, "workerinput"):
        return
    os.environ[_RUN] = str(os.getpid())
    for number in (signal.SIGTERM, signal.SIGHUP):  # else the processes of the tests would stay
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, TestReport, TestReport]:
    report = yield
    if report.failed:
        _shorten(report)
    return report


def _shorten(report: TestReport) -> None:
    """Shorten each part of the report to a page: tracebacks and captured output."""
    longrepr: Any = report.longrepr
    chain = getattr(longrepr, "chain", None) or [(getattr(longrepr, "reprtraceback", None), None, None)]
    for number, (traceback, _, _) in enumerate(chain):
        for at, entry in enumerate(getattr(traceback, "reprentries", ())):
            entry.lines = page("\n".join(entry.lines), f"{report.nodeid}-{number}-{at}").splitlines()
    if (crash := getattr(longrepr, "reprcrash", None)) is not None:
        crash.message = page(crash.message, f"{report.nodeid}-message")
    if isinstance(longrepr, str):
        report.longrepr = page(longrepr, report.nodeid)
    report.sections = [(title, page(text, f"{report.nodeid}-{title}")) for title, text in report.sections]


def _end_spark() -> None:
    """End the JVM of this process's Spark. By itself it ends with the process: without workers that is too late."""
    gateway = getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_gateway", None)
    if (java := getattr(gateway, "proc", None)) is not None:
        java.stdin.close()  # the JVM ends when its input ends


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """End the processes that tests left, and fail: every test must end its own.

    A second signal to end must wait for this, since nobody else ends these processes.
    """
    if hasattr(session.config, "workerinput"):
        return (yield)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _ignore)
    try:
        return (yield)
    finally:
        _end_what_is_left(session)


def _end_what_is_left(session: pytest.Session) -> None:
    _end_spark()
    deadline = time.monotonic() + _GRACE_SECONDS
    while (left := started_with(f"{_RUN}={os.getpid()}")) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid, command in left.items():
        print(f"\nA test left process {pid}, which is killed now: {command}")  # noqa: T201 - part of pytest's output
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
