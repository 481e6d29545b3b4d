"""A job that loses a part of Spark tries again from the tables' positions; nothing is applied twice or lost."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from offsetstream.cluster.client import Cluster
from offsetstream.demo.commits import commit_plainly
from offsetstream.demo.topics import create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.errors import NoTableError
from offsetstream.stream.lifecycle.patience import MOST_LOSSES
from offsetstream.tables.path_store import PathStore
from testkit.processes import JobProcess, session
from testkit.waiting import await_, repeated
from tests.reliability.truth import behind, differences, read_topic

pytestmark = pytest.mark.long

PAGE = 60  # lines
AGAIN = "trying again from the tables' positions"


class Story:
    """A job on a broker, whose Spark loses parts while groups commit."""

    def __init__(self, server: str, folder: Path, *options: str) -> None:
        self.server, self.folder = server, folder
        (folder / "tmp").mkdir(exist_ok=True)
        self.environment = {"TMPDIR": str(folder / "tmp")}
        self.options = ("--trigger", "1 second", *options)
        self._commits = 0

    def job(self, *options: str, **environment: str) -> JobProcess:
        given = self.environment | environment
        return JobProcess(self.server, self.folder / "job", *self.options, *options, environment=given)

    def commit(self) -> None:
        self._commits += 1
        place = [TopicPartition("orders", 0, self._commits)]
        commit_plainly(self.server, {f"{self.folder.name}-{number}": place for number in range(4)})

    def applied(self) -> bool:
        try:
            return not behind(self._tables(), read_topic(self.server)[1])
        except NoTableError:  # the job has only just started
            return False

    def differences(self) -> list[str]:
        names = {topic.topic_id: topic.name for topic in Cluster(self.server).topics()}
        return differences(self._tables(), self.server, names)

    def _tables(self) -> PathStore:
        return PathStore(str(self.folder / "job" / "tables"))


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
    (folder,) = (story.folder / "tmp").glob("offsetstream-spark-*")
    shutil.rmtree(folder)
    story.commit()


@pytest.mark.parametrize("lose", [kill_workers_at_work, kill_workers_and_daemon, remove_temporary_folder])
def test_job_tries_again_and_says_so_in_one_line(story: Story, lose: Callable[[JobProcess, Story], None]) -> None:
    story.commit()
    with story.job() as job:
        job.await_(lambda: (story.folder / "job" / "checkpoints" / "1" / "commits" / "0").exists() and story.applied())
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
    assert list((story.folder / "tmp").iterdir()) == []


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
        checkpoint = story.folder / "job" / "checkpoints" / "1"
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
    assert file.parent == story.folder / "job" / "checkpoints"
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text()
    for part in ("Traceback", "Logical Plan"):
        assert part in text
        assert part not in "\n".join(after)
    await_(lambda: not list((story.folder / "tmp").iterdir()))
