"""What Spark's failures mean to a person: the missing right, the broker that does not answer."""

from __future__ import annotations

import re
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.rights import OFFSETS_TOPIC, OWN_GROUPS, READ_OFFSETS, Right
from offsetstream.errors import (
    EnvironmentNotReadyError,
    OffsetstreamError,
    SparkEndedError,
    TablesError,
    UnauthorisedError,
    UnreachableError,
    UnreadableRecordError,
)

_RIGHTS = {
    "TopicAuthorizationException": READ_OFFSETS,
    "Not authorized to access topics": READ_OFFSETS,  # of a query that runs, which has the message alone
    "GroupAuthorizationException": OWN_GROUPS,
    "Not authorized to access group": OWN_GROUPS,
    "ClusterAuthorizationException": Right("DESCRIBE", "cluster"),
}
_MORE_MEMORY = "Spark has not enough memory: give it more by --conf spark.driver.memory=4g (2g unless said otherwise)"
_MORE_ROOM = (
    "a disk is full, that of Spark's temporary files (TMPDIR), the tables or the checkpoints; nothing is lost: make "
    "room and start the job again"
)
_FULL = "No space left on device"
_SHORT = {"java.lang.OutOfMemoryError": _MORE_MEMORY, _FULL: _MORE_ROOM}
_VIOLATED = re.compile(r"DELTA_VIOLATE_CONSTRAINT_WITH_VALUES\] CHECK constraint (.+?) violated by row")
_NO_TIME = "java.lang.ArithmeticException: long overflow"  # of milliseconds that are to become microseconds
_LOGIN = ("SaslAuthenticationException", "SslAuthenticationException", "Failed to construct kafka consumer")
_CRASH_REPORT = "hs_err_pid{}.log"  # in the folder where Java was started: ours
_TOLD_OF_CRASH = (
    "SIG",
    "Internal Error",
    "Out of Memory Error",
    "Native memory allocation",
    "V  [",
    "C  [",
    "J ",
    "j ",
)
_REAPED_SECONDS = 5.0  # from the end of its connections to the end of a process
_UNREACHABLE = (
    "org.apache.kafka.common.errors.TimeoutException",
    "ms expired before",  # of a query, which has the message alone: for the position of a partition, say
    "Timeout expired while fetching topic metadata",
    "Cannot fetch record for offset",  # of Spark's, whose consumer waits for one for half a minute
    UnreachableError.__name__,  # ours, from within a batch
)


@contextmanager
def explain_failure(cluster: Cluster) -> Iterator[None]:
    """Turn a failure of Spark that users can mend into one line; others pass as they are."""
    try:
        yield
    except TablesError as error:  # of a write by the driver
        if _FULL in str(error):
            raise EnvironmentNotReadyError(_MORE_ROOM) from error
        raise
    except (PySparkException, Py4JJavaError) as error:  # some failures PySpark does not translate
        text = str(error)
        for name, need in _SHORT.items():
            if name in text:
                raise EnvironmentNotReadyError(need) from error
        if violated := _VIOLATED.search(text):
            raise TablesError(
                f"rows of the job violate the CHECK constraint {violated[1]}: drop it by ALTER TABLE … DROP CONSTRAINT "
                f"{violated[1].split()[0]} in Spark SQL"
            ) from error
        if _NO_TIME in text:
            raise _unreadable(cluster) from error
        for name, right in _RIGHTS.items():
            if name in text:
                raise cluster.lacks([right]) from error
        if _is_login(text):
            cause = next(line for line in reversed(text.splitlines()) if "Caused by: " in line or _is_login(line))
            raise UnauthorisedError(
                f"Spark's Kafka client cannot log in at {cluster.bootstrap_server}, though librdkafka can: {cause}"
            ) from error
        if any(name in text for name in _UNREACHABLE):
            raise UnreachableError(f"{cluster.bootstrap_server} stopped answering: {text.splitlines()[0]}") from error
        raise


def _unreadable(cluster: Cluster) -> UnreadableRecordError:
    record = cluster.latest_record()
    return UnreadableRecordError(
        f"the record at offset {record.offset} of partition {record.partition} of {OFFSETS_TOPIC} has the timestamp "
        f"{record.timestamp_ms} ms, which Spark cannot read (it can until the year 294247). Have a new record written "
        "with its key (a commit, or the deletion of the group): compaction then removes it. The topic's "
        "message.timestamp.after.max.ms keeps others away"
    )


def _is_login(text: str) -> bool:
    return any(name in text for name in _LOGIN)


@contextmanager
def explain_lost_java() -> Iterator[None]:
    """Turn whatever fails after the end of Spark's own JVM into one line that says so."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM", RuntimeWarning)
            yield
    except OffsetstreamError:
        raise
    except Exception as error:
        process = getattr(SparkContext._gateway, "proc", None)  # none where another launcher started the JVM
        if process is None or not isinstance(error, (Py4JNetworkError, OSError)):
            raise
        code = _exit_code(process)
        if code is None:
            raise
        how = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        why = f"If nobody ended it, {_MORE_MEMORY}"
        report = _CRASH_REPORT.format(process.pid)
        with suppress(OSError):
            how, why = f"crashed: {_crash(Path(report))}", f"Java's report of it is {report}"
        raise SparkEndedError(f"Spark's Java process {how}; nothing is lost: start the job again. {why}") from error


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(_REAPED_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _crash(report: Path) -> str:
    """Return what Java's report has on its first page, of what happened and where; OSError where there is none."""
    page = report.read_text("utf-8", "replace").partition("---------------")[0]
    told = [line.strip("# ") for line in page.splitlines()]
    return ", ".join([line for line in told if line.startswith(_TOLD_OF_CRASH)]) or "in a way that it does not say"
