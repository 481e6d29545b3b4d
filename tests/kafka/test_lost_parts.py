"""A job that loses a part of Spark tries again from the tables' positions; nothing is applied twice or lost."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from offsetstream.demo.topics import create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.stream.lifecycle.patience import MOST_LOSSES
from testkit.processes import JobProcess, session
from testkit.waiting import await_, repeated
from tests.kafka.few_commits import FewCommits

pytestmark = pytest.mark.long

PAGE = 60  # lines
AGAIN = "trying again from the tables' positions"


class Story(FewCommits):
    """A job on a broker, whose Spark loses parts while groups commit."""

    def __init__(self, server: str, folder: Path) -> None:
        super().__init__(server, folder / "job")
        self.temporary = folder / "tmp"
        self.temporary.mkdir()

    def job(self, *options: str) -> JobProcess:
        environment = {"TMPDIR": str(self.temporary)}
        return JobProcess(self.server, self.folder, "--trigger", "1 second", *options, environment=environment)


@pytest.fixture(scope="module")
def server(own_kafka: EmbeddedKafka) -> str:
    create_topics(admin_client(own_kafka.bootstrap_server))
    return own_kafka.bootstrap_server


@pytest.fixture
def story(server: str, tmp_path: Path) -> Story:
    return Story(server, tmp_path)


def pythons(job: JobProcess) -> list[int]:
    """Return the processes of Spark's Python: the daemon and its workers."""
    return [pid for pid, command in session(job.pid).items() if "worker_daemon" in command]


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def has_unread_input(pid: int) -> bool:
    """Return whether bytes wait in a TCP socket of the process: Spark has given it work."""
    links = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    inodes = {link[8:-1] for link in links if link.startswith("socket:")}
    tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table]
    return any(fields[9] in inodes and not fields[4].endswith(":00000000") for fields in lines)


def kill_workers_at_work(job: JobProcess, story: Story) -> None:
    """Stop all workers before a batch, and kill them when it waits for them."""
    found = pythons(job)
    workers = [pid for pid in found if parent(pid) in found]
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    story.commit()
    job.await_(lambda: any(map(has_unread_input, workers)))
    kill(workers)
    for pid in set(found) - set(workers):
        os.kill(pid, signal.SIGCONT)


def kill_workers_and_daemon(job: JobProcess, story: Story) -> None:
    kill(pythons(job))
    story.commit()


def remove_temporary_folder(_job: JobProcess, story: Story) -> None:
    (folder,) = story.temporary.glob("offsetstream-spark-*")
    shutil.rmtree(folder)
    story.commit()


@pytest.mark.parametrize("lose", [kill_workers_at_work, kill_workers_and_daemon, remove_temporary_folder])
def test_job_tries_again_and_says_so_in_one_line(story: Story, lose: Callable[[JobProcess, Story], None]) -> None:
    story.commit()
    with story.job() as job:
        job.await_(lambda: (story.folder / "checkpoints" / "1" / "commits" / "0").exists() and story.applied())
        story.commit()  # a load needs no Python workers, a batch does
        job.await_(story.applied)
        before = len(job.said().splitlines())
        lose(job, story)
        job.await_(lambda: AGAIN in job.said() and story.applied())
        story.commit()
        job.await_(story.applied)
        job.signal(signal.SIGTERM)
        assert job.ended() == 0, job.said()
        after = job.said().splitlines()[before:]
    others = [line for line in after if " INFO " not in line]
    assert len(others) == 1, others
    (line,) = others
    assert " WARN " in line
    assert line.endswith(f"; {AGAIN} in 1 s")
    assert story.differences() == []
    assert list(story.temporary.iterdir()) == []


def test_job_ends_with_a_line_about_memory_when_its_workers_are_killed_again_and_again(story: Story) -> None:
    story.commit()
    with story.job() as job:
        job.await_(story.applied)
        with repeated(lambda: kill(pythons(job)), 0.02):
            story.commit()
            assert job.ended() == 1
        said = job.said()
    last = said.splitlines()[-1]
    assert " ERROR " in last, said
    assert f"for the {MOST_LOSSES}th time within 10 minutes" in last
    assert "too little memory" in last
    assert said.count(AGAIN) == MOST_LOSSES - 1
    assert "Traceback" not in said
    assert len(said.splitlines()) < PAGE
    with story.job("--once") as job:
        assert job.ended() == 0, job.said()
    assert story.applied()
    assert story.differences() == []


def test_unknown_error_is_one_line_and_a_file(story: Story) -> None:
    """Somebody puts a file in the place of the folder where Spark writes the offsets of the next batch."""
    story.commit()
    with story.job() as job:
        checkpoint = story.folder / "checkpoints" / "1"
        job.await_((checkpoint / "commits" / "0").exists)
        before = len(job.said().splitlines())
        shutil.rmtree(checkpoint / "offsets")
        (checkpoint / "offsets").write_text("a file")
        story.commit()
        assert job.ended() == 1
        after = job.said().splitlines()[before:]
    assert len(after) < PAGE
    assert " ERROR Unknown error: " in after[-1]
    file = Path(after[-1].rpartition(" is in ")[2])
    assert file.parent == story.folder / "checkpoints"
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text()
    for part in ("Traceback", "Logical Plan"):
        assert part in text
        assert part not in "\n".join(after)
    await_(lambda: not list(story.temporary.iterdir()))
