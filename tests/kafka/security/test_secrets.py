"""Passwords appear only in the user's own file."""

from pathlib import Path

import pytest

from testkit.processes import offsetstream
from tests.kafka.security.broker import SECRETS, Secured
from tests.kafka.security.watched import WatchedJob, recording_java

pytestmark = pytest.mark.long


def secrets_in(data: bytes) -> list[str]:
    return [secret for secret in SECRETS if secret.encode() in data]


def test_the_job_ran_until_its_right_was_revoked(job: WatchedJob) -> None:
    assert job.returncode == 3, job.said
    assert "lacks READ on the topic __consumer_offsets" in job.said.splitlines()[-1]
    assert len(job.processes) >= 3  # Python, Spark's JVM, Python workers
    assert b"kafka" in job.pages[0]


def test_no_process_shows_a_secret(job: WatchedJob) -> None:
    called = (job.folder / "called").read_bytes()
    assert b"keytool" in called
    assert b"SparkSubmit" in called
    assert secrets_in(called) == []
    assert {pid: secrets_in(shown) for pid, shown in job.processes.items() if secrets_in(shown)} == {}


def test_no_file_and_no_page_shows_a_secret(job: WatchedJob) -> None:
    """Check tables, checkpoints, event log, both outputs, and Spark's web pages."""
    files = [path for path in job.folder.rglob("*") if path.is_file()]
    assert {"stderr", "stdout", "called", "offsets_partitions"} <= {path.name for path in job.folder.rglob("*")}
    assert [path for path in files if secrets_in(path.read_bytes())] == []
    events = b"".join(path.read_bytes() for path in (job.folder / "events").rglob("*") if path.is_file())
    assert b"SparkListenerSQLExecutionStart" in events
    assert [secrets_in(page) for page in job.pages if secrets_in(page)] == []


def test_verify_shows_no_secret_in_processes_or_output(secured: Secured, tables: Path, tmp_path: Path) -> None:
    server = ("--bootstrap-server", secured.servers["mtls-jks"], "--command-config", str(secured.files["mtls-jks"]))
    done = offsetstream("verify", *server, "--tables", str(tables), environment=recording_java(tmp_path))
    assert done.returncode == 0, done.stderr
    called = (tmp_path / "called").read_bytes()
    assert b"py4j" in called
    assert secrets_in(called + (done.stdout + done.stderr).encode()) == []
