"""The whole job on the tables of a catalog: processes as users run them, a metastore that is a service."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from offsetstream.cluster.client import Cluster
from offsetstream.demo.workload import Workload, run_workload
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import all_schemas
from testkit.metastore import Metastore, metastore_in
from testkit.processes import Done, JobProcess, offsetstream
from testkit.waiting import SECONDS
from tests.reliability.crash_matrix import act_at
from tests.reliability.file_watch import FileWatch
from tests.reliability.truth import behind, differences, read_topic

pytestmark = pytest.mark.nightly


def ended(job: JobProcess) -> int:
    """Its exit code; a write of Spark's takes seconds, and there are many."""
    return job.process.wait(4 * SECONDS)


class CatalogJob:
    """The job on a catalog; its tables are read where they lie, by another engine than wrote them."""

    def __init__(self, server: str, workload: Workload, metastore: Metastore, folder: Path) -> None:
        self.server, self.workload, self._folder, self._metastore = server, workload, folder, metastore
        self.tables, self.place = f"spark_catalog.{folder.name}", metastore.place_of(folder.name)
        self.place.mkdir(parents=True)  # so that it can be watched

    def process(self, *options: str) -> JobProcess:
        return JobProcess(self.server, self._folder, *self._metastore.options, *options, tables=self.tables)

    def run(self, *options: str) -> list[str]:
        """Apply everything that is in the topic now; returns what is wrong with the tables then."""
        ends = read_topic(self.server)[1]
        with self.process("--once", *options) as job:
            assert ended(job) == 0, job.said()
        tables, names = PathStore(str(self.place)), {each.topic_id: each.name for each in Cluster(self.server).topics()}
        return [*behind(tables, ends), *differences(tables, self.server, names)]

    def versions(self) -> dict[str, int]:
        return {name: PathStore(str(self.place)).open(name).version for name in all_schemas()}

    def command(self, name: str, *options: str) -> Done:
        return offsetstream(name, "--tables", self.tables, *self._metastore.options, *options)

    @contextmanager
    def acted_on(
        self, table: str, action: Callable[[JobProcess], None], *, fenced: bool = False
    ) -> Iterator[JobProcess]:
        """A job with which something was done when it had made its first file of rows in a table.

        `fenced`: after that of the fence, which Delta takes back, as it has none.
        """
        rows, left = self.place / table, [1 if fenced else 0]

        def is_it(_number: int, path: Path) -> bool:
            if path.suffix != ".parquet" or not path.is_relative_to(rows):
                return False
            left[0] -= 1
            return left[0] < 0

        with FileWatch(self.place) as watch, self.process("--once") as job:
            found = act_at(watch, job, is_it, lambda: action(job))
            assert found is not None, job.said()
            yield job


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogJob]:
    metastore = metastore_in(tmp_path_factory.mktemp("metastore"))
    with (
        metastore.running(),
        EmbeddedKafka() as kafka,
        run_workload(kafka.bootstrap_server, groups=12, seed=7, say=lambda _line: None) as workload,
    ):
        yield CatalogJob(kafka.bootstrap_server, workload, metastore, tmp_path_factory.mktemp("jobs") / "kafka")


def test_a_load_and_a_batch(job: CatalogJob) -> None:
    assert job.run() == []
    job.workload.more()
    versions = job.versions()
    assert job.run() == []
    assert job.versions()["offset_commits"] > versions["offset_commits"]


def test_a_batch_that_is_killed_is_done_by_the_next_job(job: CatalogJob) -> None:
    job.workload.more()
    with job.acted_on("group_cells", JobProcess.kill):
        pass
    assert job.run() == []


def test_a_killed_deletion_of_groups_is_done_by_the_next_job(job: CatalogJob) -> None:
    job.workload.more()  # a batch that only deletes may make no file in a table
    job.workload.delete(sorted(job.workload.groups - set(job.workload.live_groups))[:5])
    with job.acted_on("groups", JobProcess.kill):
        pass
    assert job.run() == []


def test_a_killed_reload_is_done_by_the_next_job(job: CatalogJob) -> None:
    done = job.command("reload")
    assert (done.returncode, "the next one reloads" in done.stderr) == (0, True), done.stderr
    with job.acted_on("group_members", JobProcess.kill):
        pass
    assert job.run() == []


def test_a_first_load_that_is_killed_is_done_by_the_next_job(job: CatalogJob) -> None:
    other = CatalogJob(job.server, job.workload, job._metastore, job._folder.with_name("killed"))
    with other.acted_on("committed_offsets", JobProcess.kill, fenced=True):
        pass
    assert other.run() == []


@pytest.mark.parametrize("table", ["offset_commits", "committed_offsets"])
def test_a_zombie_writes_nothing(job: CatalogJob, table: str) -> None:
    job.workload.more()
    with job.acted_on(table, lambda process: process.signal(signal.SIGSTOP)) as zombie:
        # What it had begun is done by this one, whose tables are another job's from the first fence on.
        taken = JobProcess(
            job.server,
            job._folder.with_name("taker"),
            *job._metastore.options,
            "--checkpoint",
            str(job._folder / "checkpoints"),
            "--once",
            "--force",
            tables=job.tables,
        )
        with taken:
            assert ended(taken) == 0, taken.said()
        versions = job.versions()
        zombie.signal(signal.SIGCONT)
        assert ended(zombie) == 1, zombie.said()
        assert " ERROR another job has taken over the lease" in zombie.said()
        assert "Traceback" not in zombie.said()
        assert job.versions() == versions
    assert job.run() == []


def test_verify_maintain_and_stop_beside_the_job(job: CatalogJob) -> None:
    with job.process("--trigger", "5 seconds") as running:
        running.await_(lambda: "checkpoint" in running.said())
        job.workload.more()
        asked = ("--bootstrap-server", job.server, "--settle", "120", "--history", "--output", "json")
        verified = job.command("verify", *asked)
        assert verified.returncode == 0, (verified.stdout, verified.stderr)
        maintained = job.command("maintain", "--keep-history", "1d", "--output", "json")
        assert maintained.returncode == 0, maintained.stderr
        assert {row["table"] for row in json.loads(maintained.stdout)} == set(all_schemas())
        stopped = job.command("stop")
        assert (stopped.returncode, ended(running)) == (0, 0), (stopped.stderr, running.said())
    assert job.run() == []


def test_a_look_up_says_how_a_catalog_is_read(job: CatalogJob) -> None:
    done = offsetstream("groups", "list", "--tables", job.tables)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {job.tables} is a schema of a catalog, which only Spark reads: ")
    assert offsetstream("groups", "list", "--tables", str(job.place)).returncode == 0
