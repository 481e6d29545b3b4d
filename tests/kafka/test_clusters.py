"""Three clusters of three releases in one settings file, with a job each: an outage affects only its own cluster."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from offsetstream.demo import run_workload
from offsetstream.demo.topics import commit_plainly
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.errors import TablesError
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.path_store import PathStore
from testkit.processes import OFFSETSTREAM, RunningProcess, descendants, offsetstream, session
from testkit.waiting import await_, repeated

pytestmark = pytest.mark.nightly

RELEASES = ("3.9.2", "4.1.2", "4.3.1")
KILLED_JOB, DOWN, UNTOUCHED = RELEASES
STEADY, COMMITS = "steady", 3
SETTINGS = """
tables = "{folder}/tables"
[run]
checkpoint = "{folder}/checkpoints"
trigger = "1 second"
master = "local[1]"
conf = {{ "spark.driver.memory" = "1g" }}
"""


class Cluster:
    """A cluster with the demo's groups, and a group that commits as long as a broker answers."""

    def __init__(self, release: str, kafka: EmbeddedKafka, tables: Path) -> None:
        self.release, self.kafka = release, kafka
        self._tables = PathStore(str(tables))
        self.committed = 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        def commit() -> None:
            with suppress(KafkaException):
                commit_plainly(self.kafka.bootstrap_server, {STEADY: [TopicPartition("orders", 0, self.committed + 1)]})
                self.committed += 1

        with (
            run_workload(self.kafka.bootstrap_server, groups=12, seed=3, say=lambda _: None),
            repeated(commit, 0.3),
        ):
            yield

    def is_beyond(self, commit: int) -> bool:
        """Return whether the tables have a later commit of the steady group."""
        with suppress(TablesError):
            filters = {"group_id": [STEADY]}
            found = Lookup(self._tables).rows("committed_offsets", ["committed_offset"], filters)
            return any(row["committed_offset"] > commit for row in found)
        return False


class Supervised:
    """The process of `run --all-clusters`, and those of the clusters' jobs."""

    def __init__(self, running: RunningProcess, settings: Path) -> None:
        self.running, self._settings = running, settings

    def job(self, release: str) -> int | None:
        """Return the process id of a cluster's job."""
        for pid in descendants(self.running.pid):
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if words[-3:-1] == [b"--cluster", release.encode()]:
                    return pid
        return None

    def await_commits(self, *clusters: Cluster) -> None:
        """Wait several times until the tables of all clusters have commits made after the wait started."""
        for _ in range(COMMITS):
            waits = [partial(cluster.is_beyond, cluster.committed) for cluster in clusters]
            self.running.await_(lambda waits=waits: all(wait() for wait in waits))  # type: ignore[misc]

    def command(self, *arguments: str) -> Any:
        return offsetstream(*arguments, "--config", str(self._settings))


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[list[Cluster]]:
    with ExitStack() as stack:
        started = [stack.enter_context(EmbeddedKafka(version=release)) for release in RELEASES]
        found = [
            Cluster(release, kafka, tmp_path / "tables" / release)
            for release, kafka in zip(RELEASES, started, strict=True)
        ]
        for cluster in found:
            stack.enter_context(cluster.at_work())
        yield found


@pytest.fixture
def supervised(tmp_path: Path, clusters: Sequence[Cluster]) -> Iterator[Supervised]:
    text = SETTINGS.format(folder=tmp_path)
    for each in clusters:
        text += f'[clusters."{each.release}"]\nbootstrap-server = "{each.kafka.bootstrap_server}"\n'
    settings = tmp_path / "offsetstream.toml"
    settings.write_text(text)
    command = [*OFFSETSTREAM, "run", "--all-clusters", "--config", str(settings)]
    with RunningProcess(command, tmp_path / "said.txt") as running:
        yield Supervised(running, settings)


def test_an_outage_affects_only_its_own_cluster(clusters: Sequence[Cluster], supervised: Supervised) -> None:
    killed_job, down, untouched = clusters
    supervised.await_commits(*clusters)
    before = {release: supervised.job(release) for release in RELEASES}
    assert None not in before.values()

    down.kafka.stop_broker(1, kill=True)
    supervised.await_commits(killed_job, untouched)
    down.kafka.start_broker(1)
    supervised.await_commits(down)
    assert {release: supervised.job(release) for release in RELEASES} == before, "a job waits for its cluster"

    job = before[KILLED_JOB]
    assert job is not None
    os.kill(job, signal.SIGKILL)
    supervised.await_commits(*clusters)
    assert f"{KILLED_JOB}: the job ended with SIGKILL; restarting it in 1 s" in supervised.running.said()
    assert supervised.job(KILLED_JOB) not in {job, None}
    assert supervised.job(UNTOUCHED) == before[UNTOUCHED]

    listed = supervised.command("groups", "list", "--all-clusters", "--output", "json")
    assert listed.returncode == 0, listed.stderr
    steady = [row["cluster"] for row in json.loads(listed.stdout) if row["group"] == STEADY]
    assert steady == list(RELEASES)
    for release in RELEASES:
        verified = supervised.command("verify", "--cluster", release)
        assert verified.returncode == 0, verified.stdout + verified.stderr

    supervised.running.process.send_signal(signal.SIGTERM)
    assert supervised.running.ended() == 0, supervised.running.said()
    for release in RELEASES:
        assert f"{release}: Stopped between two batches" in supervised.running.said()
    await_(lambda: not session(supervised.running.pid), lambda: f"still there: {session(supervised.running.pid)}")
