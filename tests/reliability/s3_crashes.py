"""The job with tables and checkpoints on S3 is killed at a write, and started again (rule 8).

The suite runs a sample (tests/stores/test_s3_crashes.py); `python -m tests.reliability.s3_crashes` kills at each
write of a batch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import click

from offsetstream.demo.workload import Workload, run_workload
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.s3_server import Request, S3Server, in_environment, s3_server
from testkit.stored_job import StoredJob
from testkit.waiting import await_

_WRITES = ("PutObject", "CompleteMultipartUpload", "DeleteObject", "DeleteMultipleObjects")
_GROUPS = 30


@dataclass(frozen=True)
class S3Crashes:
    """A job whose writes the server counts, and a workload that gives it something to write each time."""

    server: S3Server
    job: StoredJob
    workload: Workload

    def writes(self) -> int:
        """Load existing records, then apply a batch without a crash. Returns the number of its writes."""
        self.job.once()
        self.workload.more()
        before = len(self.server.requests)
        self.job.once()
        return len(self._written(before))

    def kill_at(self, number: int) -> Request | None:
        """Kill a job at its n-th write, let another one recover, and compare everything.

        Returns the write; None if the job made fewer. Raises AssertionError with the differences, if there are any.
        """
        self.workload.more()
        before = len(self.server.requests)
        with self.job.running("--once") as running:
            await_(lambda: len(self._written(before)) >= number or running.process.poll() is not None, pause=0.001)
            was_running = running.process.poll() is None
            running.kill()
        killed_at = self._written(before)[number - 1] if was_running else None
        self.job.once("--force")  # on this host it is known to be dead; in a container its lease would be watched
        self.job.verify()
        return killed_at

    def _written(self, since: int) -> list[Request]:
        """Return the writes since then, without heartbeats, whose time varies."""
        found = (each for each in self.server.requests[since:] if each.api in _WRITES)
        return [each for each in found if "/job_lease/" not in each.key]


def s3_crashes(server: S3Server, kafka: EmbeddedKafka, workload: Workload, folder: Path) -> S3Crashes:
    """A job with its own tables."""
    place, options = server.uri(f"crashes-{folder.name}"), server.spark_options
    return S3Crashes(server, StoredJob(kafka.bootstrap_server, place, folder, options), workload)


def run(crashes: S3Crashes, sample: int | None, seed: int, say: Callable[[str], None], first: int = 1) -> int:
    """Kill at each write of a batch from `first` on, or at a seeded sample. Returns the number of kills."""
    every = range(1, crashes.writes() + 1)
    points = list(every[first - 1 :]) if sample is None else sorted(Random(seed).sample(every, sample))
    kills = 0
    for number in points:
        at = crashes.kill_at(number)
        kills += at is not None
        say(f"killed at write {number} of {len(every)}: {at.key if at else 'it had ended'}")
    return kills


@click.command()
@click.option("--sample", type=int, metavar="N", help="A seeded sample of so many kills.")
@click.option("--seed", default=1, show_default=True, help="Of the workload and of the sample.")
@click.option("--first", default=1, show_default=True, metavar="N", help="The write to begin at, to go on with a run.")
def main(sample: int | None, seed: int, first: int) -> None:
    """Kill the job at the n-th write of a batch on S3, for every n. Stops with an error at the first difference."""
    with (
        tempfile.TemporaryDirectory() as folder,
        s3_server() as server,
        in_environment(server.environment),
        EmbeddedKafka() as kafka,
        run_workload(kafka.bootstrap_server, groups=_GROUPS, seed=seed, say=lambda _line: None) as workload,
    ):
        kills = run(s3_crashes(server, kafka, workload, Path(folder)), sample, seed, click.echo, first)
        click.echo(f"{kills} kills; differences: 0")


if __name__ == "__main__":
    main()
