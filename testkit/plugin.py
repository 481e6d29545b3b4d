"""Pytest's part of the kit: the world that tests run in, failures of a page, and processes that a test left.

Whatever started pytest hands on what it has: signals that are ignored (`nohup make test`, `make test &` in a script),
settings of Spark, Java and ours in the environment, proxies. Tests, and all that they start, must not depend on it.
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

from testkit.pages import page
from testkit.processes import started_with
from testkit.waiting import PATIENCE

_RUN = "OFFSETSTREAM_TEST_RUN"  # in the environment of whatever a session of tests starts: the pid of that session
_OPEN_FILES = 4096  # of a broker with fifty offsets partitions that roll at once, of Spark, and of their clients
_GRACE_SECONDS = 20.0 * PATIENCE  # a JVM ends a moment after the process that it served

# What changes what Spark, Java, Python, Kafka and we do.
_FORGOTTEN = re.compile(
    r"OFFSETSTREAM_(?!TEST_|CACHE$|IVY_SETTINGS$)|SPARK_|PYSPARK_|HADOOP_|HIVE_|KAFKA_|DATABRICKS_|AWS_|AZURE_|GOOGLE_"
    r"|PYTHON(WARNINGS|STARTUP|UNBUFFERED|DONTWRITEBYTECODE)$"
    r"|(_JAVA_OPTIONS|JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH|COLUMNS|LINES|NO_COLOR|FORCE_COLOR)$"
    r"|PY_COLORS$|PYTEST_ADDOPTS$"
)
_LOOPBACK = "127.0.0.1,localhost"


def settle() -> None:
    """Make this process's world the one that tests expect; what it starts inherits it."""
    # A handler in Python, unlike an ignored signal, is not inherited: this process goes on to ignore it.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignore)
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # then each child's exit code is 0
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for name in [name for name in os.environ if _FORGOTTEN.match(name)]:
        del os.environ[name]
    sys.dont_write_bytecode = False  # a command of ours takes twice as long to start without
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), _LOOPBACK]))
    _keep_errors_apart()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # who may not allow more is told so by pytest_configure
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, _OPEN_FILES), max(hard, _OPEN_FILES)))


def _keep_errors_apart() -> None:
    """Have the runner of click before 8.2 keep stderr apart, and show both as output, as later ones do."""
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
    for number in (signal.SIGTERM, signal.SIGHUP):  # else nobody would end what the tests have started
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, TestReport, TestReport]:
    report = yield
    if report.failed:
        _shorten(report)
    return report


def _shorten(report: TestReport) -> None:
    """Leave a page of each part of the report: tracebacks, and what was captured."""
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
    """End the JVM of this process's Spark, which else ends with the process: without workers that is the session's."""
    gateway = getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_gateway", None)
    if (java := getattr(gateway, "proc", None)) is not None:
        java.stdin.close()  # it ends with the end of what it reads


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """End what tests left, and fail for it: every test ends its processes.

    Who asks it to end once more waits for that: what it does not end now, nobody does.
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
        print(f"\nA test left process {pid}, which is killed now: {command}")  # noqa: T201 - as pytest speaks
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
