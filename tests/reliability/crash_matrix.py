"""The crash matrix: the job is killed at the n-th file that it creates, and started again (rule 8).

Run it for every n or a part with `python -m tests.reliability.crash_matrix --help`; the suite runs a seeded sample
(tests/kafka/test_crashes.py). The killed job is a process as users start it. The recovering job runs in the session
of this process, so that a kill costs only one start of Spark. After every third kill the recovering process is killed
too. A file has a line for each kill of a commit; a run that was stopped continues after these.
"""

from __future__ import annotations

import csv
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import NamedTuple

import click
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from offsetstream.demo.workload import Workload, run_workload
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.spark.local import local_session
from offsetstream.tables.lease import request_reload
from offsetstream.tables.schema import all_schemas
from testkit.processes import JobProcess
from tests.reliability.checked_job import CheckedJob
from tests.reliability.file_watch import FileWatch
from tests.reliability.samples import sample_differences
from tests.reliability.truth import HistoryRows, history_rows

_SAMPLE_SECONDS = 1.0  # if the job samples at all: a thread's files come between those of the job's own steps
_GROUPS = 30
_DELETED = 5
_END_SECONDS = 0.5  # without a new file after the job's end
_LOOK_SECONDS = 0.2
TWICE = 2  # which of three kills a second one follows
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "crash-matrix.csv"


@dataclass(frozen=True)
class Kill:
    """A job killed after it had created `at` files; `late` more existed when it was dead.

    `last` is the file at which it was killed; None if the job had ended by itself before.
    """

    scenario: str
    at: int
    late: int
    last: Path | None


@dataclass
class Figures:
    """The results of a run."""

    kills: list[Kill] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        exact = sum(kill.late == 0 for kill in self.kills)
        scenarios = sorted({kill.scenario for kill in self.kills})
        return (
            f"{len(self.kills)} kills ({exact} before another file was made) in {len(scenarios)} scenarios "
            f"({', '.join(scenarios)}); differences: {len(self.differences)}"
        )


@dataclass(frozen=True)
class Step:
    """What the job does in a scenario if it is not killed: the number of files, and the history rows."""

    matrix: CrashMatrix
    scenario: str
    files: int
    history: HistoryRows

    def points(self, sample: int | None, seed: int) -> list[int]:
        """Return the files at which to kill: every one, or a seeded sample."""
        every = range(1, self.files + 1)
        return list(every) if sample is None else sorted(Random(f"{seed} {self.scenario}").sample(every, sample))

    def crash(self, *at: int) -> tuple[list[Kill], list[str]]:
        """Kill the job at its n-th file and each recovering job at its own; then let one recover.

        Returns the kills and the differences in the tables afterwards.
        """
        self.matrix.restore()
        kills = [self.matrix.kill(self.scenario, each) for each in at]
        wrong, told = self.matrix.job.run(), self.matrix.history()
        wrong += [
            f"not as without a crash: {told.get(key)}" for key, row in self.history.items() if told.get(key) != row
        ]
        wrong += sample_differences(self.matrix.job.runner.tables)
        for each in wrong:
            click.echo(f"{self.scenario}: {each}")  # at once: a run that is stopped early has printed its findings
        self.matrix.figures.differences += [f"{self.scenario}: {each}" for each in wrong]
        return kills, wrong


class CrashMatrix:
    """A broker with a workload, tables in the state before a scenario's step, and kills during that step."""

    def __init__(
        self, kafka: EmbeddedKafka, workload: Workload, spark: SparkSession, folder: Path, sample_seconds: float = 0.0
    ) -> None:
        self._server = kafka.bootstrap_server
        self._workload = workload
        self.folder, self._before = folder / "job", folder / "before"
        self.folder.mkdir()
        self.job = CheckedJob(spark, self._server, self.folder)
        self.job.runner.settings = replace(self.job.runner.settings, sample_interval=sample_seconds)
        self._options = ("--once", "--sample-interval", str(sample_seconds))
        self.figures = Figures()
        self._ended: list[str] = []

    @contextmanager
    def scenario(self, name: str) -> Iterator[Step]:
        """Bring topic and tables to the start of the scenario's step. Scenarios run in order.

        Each starts where the previous one ended, after its crash and recovery. Skipped scenarios run without a crash.
        """
        names = list(SCENARIOS)
        for earlier in names[len(self._ended) : names.index(name)]:
            with self.scenario(earlier):
                pass
        SCENARIOS[name](self)
        shutil.copytree(self.folder, self._before)
        with FileWatch(self.folder) as watch, listing(watch) as files:
            self.job.runner.run_once()
        yield Step(self, name, len(files), self.history())
        shutil.rmtree(self._before)
        self._ended.append(name)

    def restore(self) -> None:
        """Restore the tables and checkpoints to the start of the step."""
        shutil.rmtree(self.folder)
        shutil.copytree(self._before, self.folder)

    def kill(self, scenario: str, at: int) -> Kill:
        """Start a job on the current tables, and kill it at its n-th file."""
        with FileWatch(self.folder) as watch, JobProcess(self._server, self.folder, *self._options) as job:
            last = act_at(watch, job, lambda number, _path: number == at, job.kill)
            late = sum(1 for _ in watch.made(_END_SECONDS))
            if last is None:
                assert job.ended() == 0, job.said()
        killed = Kill(scenario, at, late, last and last.relative_to(self.folder))
        if last is not None:
            self.figures.kills.append(killed)
        return killed

    @contextmanager
    def zombie(self, table: str) -> Iterator[JobProcess]:
        """Return a job that is paused since it created its first file of rows in a table."""
        rows = self.job.runner.tables.table(table)
        with FileWatch(self.folder) as watch, JobProcess(self._server, self.folder, *self._options) as job:
            found = act_at(
                watch,
                job,
                lambda _number, path: ".parquet" in path.name and path.is_relative_to(rows),
                lambda: job.signal(signal.SIGSTOP),
            )
            assert found is not None, job.said()
            yield job

    def versions(self) -> dict[str, int]:
        """The Delta version of each table."""
        return {name: DeltaTable(self.job.runner.tables.table(name)).version() for name in all_schemas()}

    def history(self) -> HistoryRows:
        """Return the history's content for each record."""
        return history_rows(self.job.runner.tables)

    def first_load(self) -> None:
        """No tables yet."""

    def steady_state(self) -> None:
        """A clean end; then members come and go, groups commit, transactions commit and abort."""
        self._workload.more()

    def group_deletion(self) -> None:
        """Groups without members are deleted: a tombstone for each offset and for the group."""
        admin = admin_client(self._server)
        gone = sorted(self._workload.groups - set(self._workload.live_groups))[:_DELETED]
        for future in admin.delete_consumer_groups(gone).values():
            future.result(30)
        self._workload.groups -= set(gone)

    def reload(self) -> None:
        """Request a reload of all partitions, and write new commits too."""
        request_reload(self.job.runner.tables, [])
        self.job.commit()


SCENARIOS: dict[str, Callable[[CrashMatrix], None]] = {
    "first load": CrashMatrix.first_load,
    "steady state": CrashMatrix.steady_state,
    "group deletion": CrashMatrix.group_deletion,
    "reload": CrashMatrix.reload,
}


@contextmanager
def listing(watch: FileWatch) -> Iterator[list[Path]]:
    """Collect created files while the context lasts. They must be read at once, to watch new folders in time."""
    found, ended = list[Path](), threading.Event()

    def gather() -> None:
        while not ended.is_set():
            found.extend(watch.made(_LOOK_SECONDS))
        found.extend(watch.made(_END_SECONDS))

    thread = threading.Thread(target=gather)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def act_at(
    watch: FileWatch, job: JobProcess, is_it: Callable[[int, Path], bool], action: Callable[[], None]
) -> Path | None:
    """Act as soon as the job has created a file for which `is_it` (number, path) is true. Returns the file."""
    number = 0
    while job.process.poll() is None:
        for path in watch.made(_LOOK_SECONDS):
            number += 1
            if is_it(number, path):
                action()
                return path
    return None


@contextmanager
def crash_matrix(spark: SparkSession, folder: Path, seed: int, sample_seconds: float = 0.0) -> Iterator[CrashMatrix]:
    """Run a separate broker with a workload that stays alive."""
    with (
        EmbeddedKafka() as kafka,
        run_workload(kafka.bootstrap_server, groups=_GROUPS, seed=seed, say=lambda _line: None) as workload,
    ):
        yield CrashMatrix(kafka, workload, spark, folder, sample_seconds)


class Result(NamedTuple):
    """The kills at the `at`-th of `files` files of a scenario: at which files, and how many differences followed."""

    commit: str
    scenario: str
    at: int
    files: int
    killed_at: str
    differences: int


class Results:
    """The kills of a commit, in a file that has those of others, too."""

    def __init__(self, file: Path, commit: str) -> None:
        self._file, self.commit = file, commit
        self.found: list[Result] = []
        if file.exists():
            with file.open(encoding="utf-8", newline="") as lines:
                for row in csv.DictReader(lines):
                    at, files, wrong = (int(row[name]) for name in ("at", "files", "differences"))
                    self.found.append(Result(row["commit"], row["scenario"], at, files, row["killed_at"], wrong))
        self.found = [result for result in self.found if result.commit == commit]

    def done(self, scenario: str) -> set[int]:
        """Return the points of a scenario that are done."""
        return {result.at for result in self.found if result.scenario == scenario}

    def add(self, step: Step, at: int, kills: list[Kill], wrong: list[str]) -> None:
        """Write the result of a point."""
        killed_at = " ".join(str(kill.last or "it had ended") for kill in kills)
        self.found.append(Result(self.commit, step.scenario, at, step.files, killed_at, len(wrong)))
        self._file.parent.mkdir(parents=True, exist_ok=True)
        is_new = not self._file.exists()
        with self._file.open("a", encoding="utf-8", newline="") as lines:
            table = csv.writer(lines, lineterminator="\n")
            table.writerows([Result._fields, self.found[-1]] if is_new else [self.found[-1]])


def commit_of_tree() -> str:
    """Return the commit of this work tree; with `-dirty` if it has other changes."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def run(step: Step, points: list[int], say: Callable[[str], None], results: Results) -> None:
    """Kill at each of the points that are not done; every third time the recovering job is killed too."""
    done = results.done(step.scenario)
    for number, at in enumerate(points):
        if at in done:
            continue
        kills, wrong = step.crash(*([at, at] if number % 3 == TWICE else [at]))
        results.add(step, at, kills, wrong)
        for kill in kills:
            say(f"{step.scenario}: killed at file {kill.at} of {step.files}: {kill.last or 'it had ended'}")
        for each in wrong:
            say(f"  {each}")


@click.command()
@click.option("--scenario", "names", multiple=True, type=click.Choice(list(SCENARIOS)), help="Only these; repeatable.")
@click.option("--sample", type=int, metavar="N", help="A seeded sample of so many kills in each scenario.")
@click.option("--seed", default=1, show_default=True, help="Of the workload and of the sample.")
@click.option(
    "--sampling", is_flag=True, help="The job samples where logs end each second, and is killed in that, too."
)
@click.option(
    "--results",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=RESULTS,
    help="Has a line for each kill.",
)
def main(names: tuple[str, ...], sample: int | None, seed: int, file: Path, *, sampling: bool) -> None:
    """Kill the job at the n-th file that it creates, for every n of every scenario. Prints figures.

    What the results have of this commit is not done again.
    """
    results = Results(file, commit_of_tree() + (" with samples" if sampling else ""))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that broker and job end with this process
    with (
        tempfile.TemporaryDirectory() as folder,
        local_session("local[2]") as spark,
        crash_matrix(spark, Path(folder), seed, _SAMPLE_SECONDS if sampling else 0.0) as matrix,
    ):
        for name in SCENARIOS:
            if not names or name in names:
                with matrix.scenario(name) as step:
                    run(step, step.points(sample, seed), click.echo, results)
        click.echo(str(matrix.figures))
    wrong = sum(result.differences for result in results.found)
    click.echo(f"{results.commit}: {len(results.found)} points, {wrong} differences, in {file}")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
