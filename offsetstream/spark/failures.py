"""Turn Spark's failures into messages that say what to do: a missing right, a lost worker, a silent broker."""

from __future__ import annotations

import re
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.rights import OFFSETS_TOPIC, OWN_GROUPS, READ_OFFSETS, Right
from offsetstream.errors import (
    EnvironmentNotReadyError,
    LostPartError,
    OffsetstreamError,
    RefusedLoginError,
    SparkEndedError,
    StoreFaultError,
    TablesError,
    UnreachableError,
    UnreadableRecordError,
    text_with_cause,
)
from offsetstream.spark.session import java_process

_RIGHTS = {
    "TopicAuthorizationException": READ_OFFSETS,
    "Not authorized to access topics": READ_OFFSETS,  # a running query has only the message
    "GroupAuthorizationException": OWN_GROUPS,
    "Not authorized to access group": OWN_GROUPS,
    "ClusterAuthorizationException": Right("DESCRIBE", "cluster"),
}
_MORE_MEMORY = "Spark does not have enough memory: set more with --conf spark.driver.memory=4g (default: 2g)"
_MORE_ROOM = (
    "A disk is full: that of Spark's temporary files (TMPDIR), of the tables or of the checkpoints. Free some space"
)
_DISK_FULL = "No space left on device"
# How delta-rs, Hadoop, Spark and Python speak of a store that does not work now. An object store that denies access is
# not among them, nor is a file that does not exist (error 2).
_STORE_FAULT = re.compile(
    r"Generic (?!DeltaTable)\w+ error|os error (?!2\b)\d|error sending request|Input/output error|Stale file handle"
    r"|File too large|Disk quota exceeded|Read-only file system|SdkClientException"
    r"|\((?:Permission denied|Too many open files)\)"  # Java's; delta-rs has numbers
    r"|fs\.s3a\.(?:AWSClientIO|AWSNoResponse|AWSStatus5|AWSService(?:IO|Throttled))"
)
_IO = r"java\.(?:io\.(?:EOF|IO)|net\.Socket)Exception\b"
_FRAMES = r"[^\n]*\n(?:\s+at [^\n]*\n){0,20}?\s+at org\.apache\.spark\."
_NO_FILE = r"(?:FileNotFound|NoSuchFile)\w*\b[^\n]*"
_KILLED = (
    "If nobody did this, the machine or container probably has too little memory: give it more, or let Spark use less "
    "with --conf spark.driver.memory=1g (default: 2g)"
)
_REMOVED = "Let no cleaner remove files from the folder of temporary files (TMPDIR), and check its disk"
# What Spark may lose while it works, which is not about the data: a pattern in the failure's text, what happened, and
# what to do if it happens again and again.
LOST_PARTS = {
    r"Python worker exited unexpectedly": ("A Python worker of Spark was killed or crashed", _KILLED),
    _IO + _FRAMES + r"(?:api|sql\.execution)\.python\.": (
        "The Python workers of Spark were killed or crashed",
        _KILLED,
    ),
    r"(?i)Python worker failed to connect back|Failed to open socket to Python daemon|"
    r"Error from python worker|Bad data in pyspark\.daemon|EOFException occurred while reading the port number": (
        "A Python worker of Spark did not start",
        _KILLED,
    ),
    r"ExecutorLostFailure|Executor heartbeat timed out|executor \S+ exited": ("An executor of Spark was lost", _KILLED),
    r"TaskResultLost": ("The result of a task of Spark was lost", _KILLED),
    r"FetchFailedException|" + _NO_FILE + r"/shuffle_\d": ("A shuffle file of Spark was lost", _REMOVED),
    r"Block \S+ was not found even though|Could not (?:read|find) block|BlockNotFoundException|"
    + _NO_FILE
    + r"/(?:rdd_\d|broadcast_\d|temp_(?:local|shuffle)_)|"
    + _IO
    + _FRAMES
    + r"(?:serializer|storage|io)\.": ("A temporary file of Spark was removed or damaged", _REMOVED),
    _NO_FILE + r"/(?:blockmgr-|spark-[0-9a-f]{8}-|offsetstream-spark-|artifacts-[0-9a-f])"
    r"|No such file or directory: '[^'\n]*/(?:offsetstream-spark-|pyspark-[0-9a-f]{8}-)": (
        "The folder of Spark's temporary files was removed",
        _REMOVED,
    ),
}
_VIOLATED_CONSTRAINT = re.compile(r"DELTA_VIOLATE_CONSTRAINT_WITH_VALUES\] CHECK constraint (.+?) violated by row")
_TIME_OVERFLOW = "java.lang.ArithmeticException: long overflow"  # from milliseconds to microseconds
_LOGIN = (
    "SaslAuthenticationException",
    RefusedLoginError.__name__,  # raised by our code within a batch
    "SslAuthenticationException",
    "Failed to construct kafka consumer",
    "Failed to create new KafkaAdminClient",
)
_CRASH_REPORT = "hs_err_pid{}.log"  # in the current folder, where Java started
_CRASH_LINES = (
    "SIG",
    "Internal Error",
    "Out of Memory Error",
    "Native memory allocation",
    "V  [",
    "C  [",
    "J ",
    "j ",
)
_EXIT_SECONDS = 5.0  # between the loss of the connections and the end of the process
_UNREACHABLE = (
    "org.apache.kafka.common.errors.TimeoutException",
    "ms expired before",  # a query has only the message, for example for the position of a partition
    "Timeout expired while fetching topic metadata",
    "Cannot fetch record for offset",  # Spark's consumer waits half a minute for a record
    UnreachableError.__name__,  # raised by our code within a batch
)


@contextmanager
def explain_failure(cluster: Cluster | None) -> Iterator[None]:
    """Turn a failure of Spark that users can fix into one line. Other failures pass unchanged.

    `cluster`: which Spark reads; None if it reads none.
    """
    try:
        yield
    except TablesError as error:  # a write by the driver
        text = text_with_cause(error)
        if _DISK_FULL in text and not isinstance(error, StoreFaultError):  # explained by an inner use of this function
            raise StoreFaultError(f"{error}. Free some space") from error
        _raise_if_lost(error.__cause__)
        if type(error) is TablesError and _STORE_FAULT.search(text):  # not damage, not a conflict
            raise StoreFaultError(str(error)) from error
        raise
    except OSError as error:  # Python's part of the driver writes to Spark's folder, too
        _raise_if_passing(error, str(error))
        raise
    except (PySparkException, Py4JJavaError) as error:  # PySpark does not translate all failures
        text = _with_stack(error)
        if "java.lang.OutOfMemoryError" in text:
            raise EnvironmentNotReadyError(_MORE_MEMORY) from error
        if violated := _VIOLATED_CONSTRAINT.search(text):
            raise TablesError(
                f"Rows of the job violate the CHECK constraint {violated[1]}. Drop it in Spark SQL: "
                f"ALTER TABLE … DROP CONSTRAINT {violated[1].split()[0]}"
            ) from error
        _raise_if_passing(error, text)
        if cluster is not None:
            _raise_if_of_cluster(cluster, error, text)
        raise


def _raise_if_of_cluster(cluster: Cluster, error: Exception, text: str) -> None:
    """Raise an error that says what to do, if the cluster is the cause of the failure."""
    if _TIME_OVERFLOW in text:
        raise _unreadable_record(cluster) from error
    for name, right in _RIGHTS.items():
        if name in text:
            raise cluster.lacks([right]) from error
    if _is_login(text):
        cause = next(line for line in reversed(text.splitlines()) if "Caused by: " in line or _is_login(line))
        raise RefusedLoginError(
            f"Spark's Kafka client cannot log in at {cluster.bootstrap_server}, although librdkafka can: {cause}"
        ) from error
    if any(name in text for name in _UNREACHABLE):
        raise UnreachableError(f"{cluster.bootstrap_server} stopped answering: {text.splitlines()[0]}") from error


def _with_stack(error: Exception) -> str:
    """Return a failure's text. That of a query lacks the names of Java's classes; the stack of its cause has them."""
    return "\n".join([str(error), getattr(getattr(error, "_cause", None), "_stackTrace", "")])


def _raise_if_lost(error: BaseException | None) -> None:
    """Raise LostPartError if Spark's failure is one of LOST_PARTS."""
    if isinstance(error, (PySparkException, Py4JJavaError, OSError)):
        for pattern, (what, advice) in LOST_PARTS.items():
            if re.search(pattern, str(error)):
                raise LostPartError(what, advice) from error


def _raise_if_passing(error: Exception, text: str) -> None:
    """Raise StoreFaultError or LostPartError if the failure is not about the data: the same work may succeed again."""
    if _DISK_FULL in text:
        raise StoreFaultError(_MORE_ROOM) from error
    _raise_if_lost(error)
    if faulty := next(filter(_STORE_FAULT.search, text.splitlines()), None):
        raise StoreFaultError(f"cannot read or write the tables or checkpoints: {faulty.strip()}") from error


def _unreadable_record(cluster: Cluster) -> UnreadableRecordError:
    record = cluster.latest_record()
    return UnreadableRecordError(
        f"The record at offset {record.offset} of partition {record.partition} of {OFFSETS_TOPIC} has the timestamp "
        f"{record.timestamp_ms} ms, which Spark cannot read (its limit is the year 294247). Commit again or delete the "
        "group: the new record has the same key, and compaction then removes the old one. To reject such timestamps in "
        "future, set message.timestamp.after.max.ms of the topic"
    )


def _is_login(text: str) -> bool:
    return any(name in text for name in _LOGIN)


@contextmanager
def explain_ended_java() -> Iterator[None]:
    """Turn any failure after the end of Spark's JVM into one line that says so."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM", RuntimeWarning)
            yield
    except OffsetstreamError:
        raise
    except Exception as error:
        process = java_process()
        if process is None or not isinstance(error, (Py4JNetworkError, OSError)):
            raise
        code = _exit_code(process)
        if code is None:
            raise
        end = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        advice = f"If nobody ended it: {_MORE_MEMORY}"
        report = _CRASH_REPORT.format(process.pid)
        with suppress(OSError):
            end, advice = f"crashed ({_crash_summary(Path(report))})", f"Java's report of the crash is {report}"
        raise SparkEndedError(f"Spark's Java process {end}. Nothing is lost. Start the job again. {advice}") from error


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _crash_summary(report: Path) -> str:
    """Return the reason and the place of a crash from Java's report. Raises OSError without a report."""
    page = report.read_text("utf-8", "replace").partition("---------------")[0]
    lines = [line.strip("# ") for line in page.splitlines()]
    return ", ".join([line for line in lines if line.startswith(_CRASH_LINES)]) or "no reason given"
