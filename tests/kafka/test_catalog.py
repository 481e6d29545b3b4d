"""The complete job on tables of a catalog: processes as users run them, and a metastore service."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from offsetstream import commit_offsets, fetch_offsets
from offsetstream.cluster.client import Cluster
from offsetstream.demo.workload import Workload, run_workload
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import all_schemas
from testkit.live_logs import create_topic, write
from testkit.metastore import Metastore, metastore_in
from testkit.processes import Done, JobProcess, offsetstream
from testkit.waiting import SECONDS
from tests.kafka.reset.stage import reset_at_once
from tests.reliability.crash_matrix import act_at
from tests.reliability.file_watch import FileWatch
from tests.reliability.truth import behind, differences, read_topic

pytestmark = pytest.mark.nightly


def await_exit(job: JobProcess) -> int:
    """Wait for the job's end; return its exit code. Spark needs seconds for each of many writes."""
    return job.process.wait(4 * SECONDS)


class CatalogJob:
    """The job on a catalog. Its tables are read from their location by another engine than the one that wrote them."""

    def __init__(self, server: str, workload: Workload, metastore: Metastore, folder: Path) -> None:
        self.server, self.workload, self._folder, self._metastore = server, workload, folder, metastore
        self.tables, self.place = f"spark_catalog.{folder.name}", metastore.place_of(folder.name)
        self.place.mkdir(parents=True)  # it must exist to be watched

    def process(self, *options: str) -> JobProcess:
        return JobProcess(self.server, self._folder, *self._metastore.options, *options, tables=self.tables)

    def run(self, *options: str) -> list[str]:
        """Apply all records that are in the topic now; return what is wrong with the tables afterwards."""
        ends = read_topic(self.server)[1]
        with self.process("--once", *options) as job:
            assert await_exit(job) == 0, job.said()
        tables, names = PathStore(str(self.place)), {each.topic_id: each.name for each in Cluster(self.server).topics()}
        return [*behind(tables, ends), *differences(tables, self.server, names)]

    def versions(self) -> dict[str, int]:
        return {name: PathStore(str(self.place)).open(name).version for name in all_schemas()}

    def command(self, name: str, *options: str) -> Done:
        return offsetstream(name, "--tables", self.tables, *self._metastore.options, *options)

    @contextmanager
    def run_and_act(
        self, table: str, action: Callable[[JobProcess], None], *, fenced: bool = False
    ) -> Iterator[JobProcess]:
        """Run a job, and act on it when it has written its first file of rows in a table.

        `fenced`: ignore the first file, which belongs to the fence; it has no rows and Delta drops it.
        """
        rows, files_to_skip = self.place / table, [1 if fenced else 0]

        def is_wanted_file(_number: int, path: Path) -> bool:
            if path.suffix != ".parquet" or not path.is_relative_to(rows):
                return False
            files_to_skip[0] -= 1
            return files_to_skip[0] < 0

        with FileWatch(self.place) as watch, self.process("--once") as job:
            found = act_at(watch, job, is_wanted_file, lambda: action(job))
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


def test_a_load_and_a_batch_write_the_tables(job: CatalogJob) -> None:
    assert job.run() == []
    job.workload.more()
    versions = job.versions()
    assert job.run() == []
    assert job.versions()["offset_commits"] > versions["offset_commits"]


def test_the_next_job_repeats_a_killed_batch(job: CatalogJob) -> None:
    job.workload.more()
    with job.run_and_act("group_cells", JobProcess.kill):
        pass
    assert job.run() == []


def test_the_next_job_repeats_a_killed_deletion_of_groups(job: CatalogJob) -> None:
    job.workload.more()  # a batch that only deletes may make no file in a table
    job.workload.delete(sorted(job.workload.groups - set(job.workload.live_groups))[:5])
    with job.run_and_act("groups", JobProcess.kill):
        pass
    assert job.run() == []


def test_the_next_job_repeats_a_killed_reload(job: CatalogJob) -> None:
    done = job.command("reload")
    assert (done.returncode, "the next one reloads" in done.stderr) == (0, True), done.stderr
    with job.run_and_act("group_members", JobProcess.kill):
        pass
    assert job.run() == []


def test_the_next_job_repeats_a_killed_first_load(job: CatalogJob) -> None:
    killed = CatalogJob(job.server, job.workload, job._metastore, job._folder.with_name("killed"))
    with killed.run_and_act("committed_offsets", JobProcess.kill, fenced=True):
        pass
    assert killed.run() == []


@pytest.mark.parametrize("table", ["offset_commits", "committed_offsets"])
def test_a_zombie_writes_nothing(job: CatalogJob, table: str) -> None:
    job.workload.more()
    with job.run_and_act(table, lambda process: process.signal(signal.SIGSTOP)) as zombie:
        # This job finishes what the zombie started. Its first fence makes the tables its own.
        taker = JobProcess(
            job.server,
            job._folder.with_name("taker"),
            *job._metastore.options,
            "--checkpoint",
            str(job._folder / "checkpoints"),
            "--once",
            "--force",
            tables=job.tables,
        )
        with taker:
            assert await_exit(taker) == 0, taker.said()
        versions = job.versions()
        zombie.signal(signal.SIGCONT)
        assert await_exit(zombie) == 1, zombie.said()
        assert " ERROR another job has taken over the lease" in zombie.said()
        assert "Traceback" not in zombie.said()
        assert job.versions() == versions
    assert job.run() == []


def test_verify_maintain_and_stop_while_the_job_runs(job: CatalogJob) -> None:
    with job.process("--trigger", "5 seconds") as running:
        running.await_(lambda: "checkpoint" in running.said())
        job.workload.more()
        options = ("--bootstrap-server", job.server, "--settle", "120", "--history", "--output", "json")
        verified = job.command("verify", *options)
        assert verified.returncode == 0, (verified.stdout, verified.stderr)
        maintained = job.command("maintain", "--keep-history", "1d", "--output", "json")
        assert maintained.returncode == 0, maintained.stderr
        assert {row["table"] for row in json.loads(maintained.stdout)} == set(all_schemas())
        stopped = job.command("stop")
        assert (stopped.returncode, await_exit(running)) == (0, 0), (stopped.stderr, running.said())
    assert job.run() == []


def test_three_resets_at_once_never_mix(job: CatalogJob, tmp_path: Path) -> None:
    """The tables of `tests/kafka/reset/test_operators.py` are in a folder."""
    places = [("parcels", partition) for partition in range(3)]
    create_topic(job.server, "parcels", len(places))
    for _, partition in places:
        write(job.server, "parcels", *({"value": str(number)} for number in range(20)), partition=partition)
    assert commit_offsets(job.server, "three", dict.fromkeys(places, 5)) == dict.fromkeys(places)
    place = ("--tables", job.tables, *job._metastore.options)
    states = reset_at_once(job.server, "three", tmp_path / "snapshots", *place, topic="parcels")
    assert {each.offset for each in fetch_offsets(job.server, "three").values()} == {states[-1]}


def test_a_look_up_on_a_catalog_names_the_way_to_read_it(job: CatalogJob) -> None:
    done = offsetstream("groups", "list", "--tables", job.tables)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {job.tables} is a schema of a catalog, which only Spark reads: ")
    assert offsetstream("groups", "list", "--tables", str(job.place)).returncode == 0
