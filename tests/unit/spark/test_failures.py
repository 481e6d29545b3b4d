import errno
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from offsetstream.cluster.answers import RecordPlace
from offsetstream.cluster.client import Cluster
from offsetstream.errors import (
    ConflictError,
    EnvironmentNotReadyError,
    OffsetstreamError,
    RefusedLoginError,
    SparkEndedError,
    StoreFaultError,
    TablesError,
    UnauthorisedError,
    UnreachableError,
    UnreadableRecordError,
)
from offsetstream.spark import failures
from offsetstream.spark.failures import explain_ended_java, explain_failure
from offsetstream.tables.catalog_store.errors import is_conflict


@pytest.fixture
def cluster() -> Cluster:
    return Cluster("127.0.0.1:1")  # nobody is asked


STOPPED = r"127\.0\.0\.1:1 stopped answering"
KAFKA = "[STREAM_FAILED] Query terminated\norg.apache.kafka.common.errors."
QUERY = "[STREAM_FAILED] Query [id = 1] terminated with exception: "
STAGE = "Job aborted due to stage failure: … java."


@pytest.mark.parametrize(
    ("error", "meant", "words"),
    [
        (f"{KAFKA}TopicAuthorizationException", UnauthorisedError, "lacks READ on the topic __consumer_offsets"),
        (f"{KAFKA}GroupAuthorizationException", UnauthorisedError, "lacks DESCRIBE on the groups with the prefix"),
        (f"{KAFKA}ClusterAuthorizationException", UnauthorisedError, "lacks DESCRIBE on the cluster"),
        (
            f"{KAFKA}SaslAuthenticationException",
            RefusedLoginError,
            "Spark's Kafka client cannot log in at 127.0.0.1:1, although .*Sasl",
        ),
        (f"{KAFKA}TimeoutException", UnreachableError, STOPPED),
        (f"{KAFKA}Cannot fetch record for offset 7 in 120000 milliseconds", UnreachableError, STOPPED),
        (
            f"{QUERY}Timeout of 60000ms expired before the position for partition a-7",
            UnreachableError,
            STOPPED,
        ),
        (f"{QUERY}Timeout expired while fetching topic metadata", UnreachableError, STOPPED),
        (f"{STAGE}io.IOException: No space left on device", StoreFaultError, "A disk is full"),
        (
            f"{STAGE}lang.OutOfMemoryError: Java heap space",
            EnvironmentNotReadyError,
            r"enough memory: .* --conf spark\.driver\.memory=4g",
        ),
    ],
)
def test_a_failure_that_users_can_fix_is_one_line(
    cluster: Cluster, error: str, meant: type[OffsetstreamError], words: str
) -> None:
    with pytest.raises(meant, match=words) as raised, explain_failure(cluster):
        raise PySparkException(f"{error}: …\n  at …")
    assert "\n" not in str(raised.value)
    assert error.startswith(STAGE) or "127.0.0.1:1" in str(raised.value)


def test_a_refused_login_is_found_in_the_cause_of_a_query_that_has_only_its_message(cluster: Cluster) -> None:
    error = PySparkException('{"status":"invalid_token"}')
    name = "org.apache.kafka.common.errors.SaslAuthenticationException"
    error._cause = SimpleNamespace(_stackTrace=f"{name}: …\n\tat …")  # type: ignore[attr-defined]  # as PySpark has it
    with pytest.raises(RefusedLoginError, match=name), explain_failure(cluster):
        raise error


def test_a_timestamp_that_spark_cannot_read_is_reported_with_its_offset(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "latest_record", lambda _: RecordPlace(7, 123, 2**63 - 1))
    error = PySparkException("Job aborted due to stage failure: … java.lang.ArithmeticException: long overflow\n  at …")
    words = f"offset 123 of partition 7 of __consumer_offsets has the timestamp {2**63 - 1} ms, which Spark cannot read"
    with pytest.raises(UnreadableRecordError, match=words), explain_failure(cluster):
        raise error


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> Iterator["subprocess.Popen[bytes]"]:
    """A process in the place of Spark's JVM."""
    with subprocess.Popen(["sleep", "60"]) as process:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
        yield process
        process.kill()


@pytest.mark.parametrize("error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111)])
def test_a_failure_after_the_end_of_java_is_one_line(java: "subprocess.Popen[bytes]", error: Exception) -> None:
    java.kill()
    words = r"ended by signal 9\. Nothing is lost\. Start the job again\..* --conf spark\.driver\.memory=4g"
    with pytest.raises(SparkEndedError, match=words), explain_ended_java():
        raise error


REPORT = """#
# A fatal error has been detected by the Java Runtime Environment:
#
#  SIGSEGV (0xb) at pc=0x00007fd380b40f14, pid=12904, tid=12904
#
# JRE version: OpenJDK Runtime Environment (17.0.15+6)
# Problematic frame:
# C  [libc.so.6+0x85f14]
#

---------------  S U M M A R Y ------------
C  [libc.so.6+0x85f14]
"""


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (REPORT, "SIGSEGV (0xb) at pc=0x00007fd380b40f14, pid=12904, tid=12904, C  [libc.so.6+0x85f14]). Nothing is"),
        ("# Native memory allocation (malloc) failed\n# Out of Memory Error (arena.cpp:79)", "(malloc) failed, Out of"),
        ("", "crashed (no reason given). "),
    ],
)
def test_a_crash_of_java_is_reported_with_its_reason(
    java: "subprocess.Popen[bytes]", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(f"hs_err_pid{java.pid}.log").write_text(report, "utf-8")
    java.send_signal(signal.SIGABRT)
    with pytest.raises(SparkEndedError, match=re.escape(words)) as raised, explain_ended_java():
        raise Py4JNetworkError("Answer from Java side is empty")
    assert str(raised.value).endswith(f"Java's report of the crash is hs_err_pid{java.pid}.log")


def test_a_failure_while_java_runs_passes_unchanged(
    java: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "_EXIT_SECONDS", 0.01)
    for error in (Py4JNetworkError("a passing one"), OSError("disk"), ValueError("of ours")):
        with pytest.raises(type(error)) as raised, explain_ended_java():
            raise error
        assert raised.value is error


def test_a_full_disk_in_a_write_of_the_driver_is_reported(cluster: Cluster) -> None:
    full = TablesError("cannot write to the table t: Failed to parse parquet: … No space left on device (os error 28)")
    with pytest.raises(StoreFaultError, match=r"the table t: .* Free some space"), explain_failure(cluster):
        raise full
    with pytest.raises(TablesError, match="of another kind"), explain_failure(cluster):
        raise TablesError("of another kind")


def test_a_failure_is_explained_once(cluster: Cluster) -> None:
    with pytest.raises(StoreFaultError) as raised, explain_failure(cluster), explain_failure(cluster):
        raise OSError("No space left on device")
    assert str(raised.value).count("Free some space") == 1


@pytest.mark.parametrize(
    "error",
    [
        TablesError("cannot write to the table t: Unable to copy data to file: File too large (os error 27)"),
        TablesError("cannot read the table s3a://lake/t: Generic S3 error: Error performing GET … sending request"),
        PySparkException("[STREAM_FAILED] …\n… org.apache.hadoop.fs.s3a.AWSClientIOException: PUT 0-byte object\n"),
        PySparkException("[STREAM_FAILED] …\njava.io.IOException: Input/output error\n"),
        PySparkException("[STREAM_FAILED] …\njava.io.FileNotFoundException: cp/1/commits/.9.tmp (Permission denied)\n"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
    ],
)
def test_a_store_that_does_not_work_now_may_be_tried_again(cluster: Cluster, error: Exception) -> None:
    with pytest.raises(StoreFaultError) as raised, explain_failure(cluster):
        raise error
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "error",
    [
        # with the cause, as delta-rs tells of a violated CHECK
        TablesError(
            "rows of the job violate a CHECK constraint of the table t; it has bad (a <= 1): Generic DeltaTable error: "
            "External error: Invalid data found: 1 rows failed validation check."
        ),
        TablesError("the tables are of another cluster"),
        TablesError("cannot read the table s3a://lake/t: AccessDenied: Access Denied."),
        ConflictError("the table t was written to meanwhile: … (os error 5)"),
        OSError(errno.ENOENT, "No such file or directory"),
        PySparkException(f"{KAFKA}SomeOtherException: …\n  at …"),
    ],
)
def test_other_errors_pass_unchanged(cluster: Cluster, error: Exception) -> None:
    with explain_failure(cluster):
        pass
    with pytest.raises(type(error)) as raised, explain_failure(cluster):
        raise error
    assert raised.value is error


def test_only_an_exception_is_a_conflict_not_a_frame() -> None:
    frames = PySparkException("No space left\n  at java.util.concurrent.ConcurrentHashMap.compute")
    assert not is_conflict(frames)
    assert is_conflict(PySparkException("io.delta.exceptions.ConcurrentAppendException: [DELTA_CONCURRENT_APPEND]"))
