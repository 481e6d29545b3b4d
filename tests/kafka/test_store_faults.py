"""A job whose store fails for minutes tries again from the tables' positions; nothing is applied twice or lost.

A limit of the size of files (RLIMIT_FSIZE) of zero makes a process's writes fail, as a quota or a full disk does.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from offsetstream.demo.topics import create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.tables.lease import LIFETIME, read_lease
from offsetstream.tables.names import COMMITTED_OFFSETS, GROUP_CELLS
from offsetstream.tables.path_store import PathStore
from testkit.processes import OFFSETSTREAM, session
from testkit.waiting import await_
from tests.kafka.few_commits import FewCommits

pytestmark = pytest.mark.long

PAGE = 60  # lines
AGAIN = "trying again from the tables' positions"


class PipedJob:
    """A job whose log goes into a pipe: no limit of the size of files affects that."""

    def __init__(self, server: str, folder: Path, *options: str) -> None:
        places = ("--tables", str(folder / "tables"), "--checkpoint", str(folder / "checkpoints"))
        command = [*OFFSETSTREAM, "run", "--bootstrap-server", server, *places, "--trigger", "1 second", *options]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
            env=os.environ | {"RUST_BACKTRACE": "0"},  # delta-rs panics at each failed write
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as pipe:
            self.lines += iter(pipe.readline, "")

    def said(self) -> str:
        return "".join(self.lines)

    def java(self) -> int:
        """Return the process of Spark's JVM."""
        commands = session(self.process.pid).items()
        (java,) = (pid for pid, command in commands if command.split(" ")[0].endswith("java"))
        return java

    def ended(self) -> int:
        """Wait until the job ends, and return its exit code."""
        await_(lambda: self.process.poll() is not None, self.said)
        self._reader.join()
        return int(self.process.returncode)


@contextmanager
def running(story: FewCommits, *options: str) -> Iterator[PipedJob]:
    """Run a job, and end its processes after the context."""
    job = PipedJob(story.server, story.folder, *options)
    try:
        yield job
    finally:
        if job.process.poll() is None:
            job.process.send_signal(signal.SIGKILL)
            job.process.wait()
        await_(lambda: not session(job.process.pid))


@pytest.fixture(scope="module")
def server(own_kafka: EmbeddedKafka) -> str:
    create_topics(admin_client(own_kafka.bootstrap_server))
    return own_kafka.bootstrap_server


@pytest.fixture
def story(server: str, tmp_path: Path) -> FewCommits:
    return FewCommits(server, tmp_path / "job")


def with_limit(pid: int, size: int) -> None:
    """Let a process write no file beyond this size."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def lease_is_over(tables: PathStore) -> bool:
    row = read_lease(tables)
    assert row is not None
    assert row.heartbeat_at is not None
    return datetime.now(UTC) - row.heartbeat_at > LIFETIME + timedelta(seconds=5)


def test_job_outlives_a_store_that_takes_no_writes_for_longer_than_its_lease(story: FewCommits) -> None:
    story.commit()
    with running(story) as job:
        await_(story.applied, job.said)
        with_limit(job.process.pid, 0)
        story.commit()
        await_(lambda: AGAIN in job.said() and lease_is_over(story.tables), job.said)
        assert job.process.poll() is None
        with_limit(job.process.pid, resource.RLIM_INFINITY)
        await_(story.applied, job.said)
        story.commit()
        await_(story.applied, job.said)
        job.process.send_signal(signal.SIGTERM)
        assert job.ended() == 0, job.said()
    assert "Cannot renew the lease: " in job.said()
    assert " ERROR " not in job.said()
    assert "Traceback" not in job.said()
    assert story.differences() == []


def test_job_outlives_a_checkpoint_that_takes_no_writes(story: FewCommits) -> None:
    story.commit()
    with running(story) as job:
        await_(story.applied, job.said)
        java = job.java()
        with_limit(java, 0)
        story.commit()
        await_(lambda: AGAIN in job.said(), job.said)
        with_limit(java, resource.RLIM_INFINITY)
        await_(story.applied, job.said)
        job.process.send_signal(signal.SIGTERM)
        assert job.ended() == 0, job.said()
    assert "Traceback" not in job.said()
    assert story.differences() == []


def test_job_makes_tables_again_that_someone_deletes_while_it_runs(story: FewCommits) -> None:
    story.commit()
    with running(story) as job:
        await_(story.applied, job.said)
        for table in (COMMITTED_OFFSETS, GROUP_CELLS):
            shutil.rmtree(story.folder / "tables" / table)
        story.commit()
        await_(lambda: "while the job ran: creating what is missing" in job.said() and story.applied(), job.said)
        job.process.send_signal(signal.SIGTERM)
        assert job.ended() == 0, job.said()
    assert story.differences() == []


def test_job_waits_for_tables_that_someone_moved_away(story: FewCommits) -> None:
    tables, away = (story.folder / name for name in ("tables", "away"))
    story.commit()
    with running(story) as job:
        await_(story.applied, job.said)
        tables.rename(away)
        story.commit()
        await_(lambda: AGAIN in job.said() and "Cannot renew the lease: " in job.said(), job.said)
        assert not tables.exists()
        away.rename(tables)
        await_(story.applied, job.said)
        job.process.send_signal(signal.SIGTERM)
        assert job.ended() == 0, job.said()
    assert "Traceback" not in job.said()
    assert story.differences() == []


def test_job_writes_nothing_into_an_older_copy_of_its_tables(story: FewCommits) -> None:
    tables, old, new = (story.folder / name for name in ("tables", "old", "new"))
    story.commit()
    with running(story) as job:
        await_(story.applied, job.said)
        shutil.copytree(tables, old)
        story.commit()
        await_(story.applied, job.said)
        tables.rename(new)
        old.rename(tables)
        story.commit()
        assert job.ended() == 1, job.said()
    assert "went back from version" in job.lines[-1]
    assert "Traceback" not in job.said()
    with running(story, "--once") as job:
        assert job.ended() == 0, job.said()
    assert story.differences() == []
    history = [*OFFSETSTREAM, "verify", "--history", "--tables", str(tables), "--bootstrap-server", story.server]
    verified = subprocess.run(history, capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_job_ends_with_one_line_when_the_store_takes_no_writes_for_too_long(story: FewCommits) -> None:
    story.commit()
    with running(story, "--max-silence", "0.2") as job:
        await_(story.applied, job.said)
        before = len(job.lines)
        with_limit(job.process.pid, 0)
        story.commit()
        assert job.ended() == 1, job.said()
    after = job.lines[before:]
    assert len(after) < PAGE, job.said()
    assert " ERROR " in after[-1]
    assert "Traceback" not in job.said()
    with running(story, "--once") as job:
        assert job.ended() == 0, job.said()
    assert story.applied()
    assert story.differences() == []
