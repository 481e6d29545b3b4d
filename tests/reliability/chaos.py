"""The chaos run: brokers and the job are killed at random while clients work; nothing may be lost or doubled.

Run `python -m tests.reliability.chaos --minutes 30` (`make chaos MINUTES=30`). The suite runs two minutes of it
(tests/kafka/test_chaos.py). At most one of the three brokers is down at a time. There are two modes:

- Default: three replicas and no log cleaner. At the end the topic still has every record that the job must have seen.
- `--compaction`: one replica, so that a killed broker takes its partitions away, now and then for a minute. The log is
  compacted within seconds, and tombstones go within a minute. The job pauses for longer than that, and the topic gets
  more partitions. The ledger covers what the topic no longer has (`offsetstream verify --history`).
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import click
from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import NewPartitions

from offsetstream.cluster.client import Cluster
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.errors import ClusterError
from offsetstream.tables.path_store import PathStore
from testkit.processes import JobProcess, offsetstream
from testkit.waiting import await_
from tests.reliability.chaos_clients import ChaosClients
from tests.reliability.truth import TOPIC, behind, differences, read_topic, rows

WHOLE_LOG = {"log.cleaner.enable": "false", "min.insync.replicas": "2"}
COMPACTED_LOG = {
    "offsets.topic.replication.factor": "1",
    "log.roll.ms": "2000",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.delete.retention.ms": "60000",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "500",
}
_BROKERS = (1, 2, 3)
# All in seconds: between two events; a job's life, long enough to start and apply something, most of the time; a job
# that stands still, longer than tombstones are kept or not; a broker that takes its partitions with it.
_PAUSE, _JOB_LIVES, _JOB_STANDS, _BROKER_GONE = (1.0, 6.0), (15.0, 40.0), (5.0, 90.0), (50.0, 70.0)
_MORE_PARTITIONS = 10


@dataclass
class Figures:
    """The results of a run."""

    seconds: float = 0.0
    broker_kills: int = 0
    broker_stops: int = 0
    broker_minutes: int = 0
    partitions_added: int = 0
    job_kills: int = 0
    job_pauses: int = 0
    job_ends: list[str] = field(default_factory=list)  # ended by itself, with its last output
    records: dict[str, int] = field(default_factory=dict)
    commits_asked: int = 0
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        written = ", ".join(f"{count:,} {table}" for table, count in self.records.items())
        return (
            f"{self.seconds:.0f} s: {self.broker_kills} brokers killed, {self.broker_stops} stopped, "
            f"{self.broker_minutes} of them away for a minute; {self.partitions_added} offsets partitions added; the "
            f"job killed {self.job_kills} times, paused {self.job_pauses} times, ended by itself {len(self.job_ends)} "
            f"times; {self.commits_asked:,} rounds of commits, {written}; differences: {len(self.differences)}"
        )


class Chaos:
    """A cluster, clients, and a job on tables in a folder. A seed determines the events."""

    def __init__(
        self, kafka: EmbeddedKafka, folder: Path, seed: int, say: Callable[[str], None], *, compaction: bool
    ) -> None:
        self._kafka, self._folder, self._say, self._compaction = kafka, folder, say, compaction
        self._rng = Random(seed)
        self._clients = ChaosClients(kafka.bootstrap_server, seed)
        self._tables = PathStore(str(folder / "tables"))
        self._admin = admin_client(kafka.bootstrap_server)
        self._job: JobProcess | None = None
        self._job_until = 0.0
        self.figures = Figures()

    def run(self, seconds: float) -> Figures:
        """Run events for this many seconds; then let everything come to rest, and compare tables and topic."""
        started = time.monotonic()
        try:
            with self._clients:
                while time.monotonic() < started + seconds:
                    self._look_after_job()
                    self._rng.choice(self._faults)()
                    self._wait()
            self.figures.seconds = time.monotonic() - started
            self.figures.commits_asked = self._clients.rounds
            self._come_to_rest()
            self._compare()
        finally:
            if self._job is not None:
                self._job.kill()
        return self.figures

    @property
    def _faults(self) -> Sequence[Callable[[], None]]:
        faults = (self._take_broker_away, self._kill_job)
        if not self._compaction:
            return faults
        return (*faults, self._pause_job, self._take_for_a_minute, self._add_partitions)

    def _wait(self, least_and_most: tuple[float, float] = _PAUSE) -> None:
        time.sleep(self._rng.uniform(*least_and_most))

    def _look_after_job(self) -> None:
        """Start the job if it was killed or ended by itself, as a supervisor does."""
        if self._job is not None and self._job.process.poll() is None:
            return
        if self._job is not None:
            last = self._job.said().strip().splitlines()[-1]
            self.figures.job_ends.append(last)
            self._say(f"The job ended by itself: {last}")
        self._start_job()

    def _start_job(self) -> None:
        self._job = JobProcess(self._kafka.bootstrap_server, self._folder, "--trigger", "1 second")
        self._job_until = time.monotonic() + self._rng.uniform(*_JOB_LIVES)

    def _kill_job(self) -> None:
        if self._job is None or self._job.process.poll() is not None or time.monotonic() < self._job_until:
            return
        self._job.kill()
        self.figures.job_kills += 1
        self._say(f"Killed the job; it had said: {self._job.said().strip().splitlines()[-1:]}")
        self._start_job()

    def _pause_job(self) -> None:
        """Pause the job, as on a suspended machine: it may resume after tombstones are gone."""
        if self._job is None or self._job.process.poll() is not None or time.monotonic() < self._job_until:
            return
        self._job.signal(signal.SIGSTOP)
        self.figures.job_pauses += 1
        self._say("The job stands still")
        self._wait(_JOB_STANDS)
        self._job.signal(signal.SIGCONT)
        self._say("The job goes on")

    def _add_partitions(self) -> None:
        """Add partitions to the topic, once or twice in half an hour. Groups move to them and leave rows behind."""
        if self._rng.random() < 0.1:
            count = len(Cluster(self._kafka.bootstrap_server).topic_partitions()) + _MORE_PARTITIONS
            self._admin.create_partitions([NewPartitions(TOPIC, count)])[TOPIC].result(30)
            self.figures.partitions_added += _MORE_PARTITIONS
            self._say(f"The topic has {count} partitions now")

    def _take_for_a_minute(self) -> None:
        self.figures.broker_minutes += 1
        self._take_broker_away(_BROKER_GONE)

    def _take_broker_away(self, seconds: tuple[float, float] = _PAUSE) -> None:
        broker, kill = self._rng.choice(_BROKERS), self._rng.random() < 0.7
        self._kafka.stop_broker(broker, kill=kill)
        self.figures.broker_kills += kill
        self.figures.broker_stops += not kill
        self._say(f"Broker {broker} is {'killed' if kill else 'stopped'}")
        self._wait(seconds)
        self._kafka.start_broker(broker)
        await_(self._is_in_sync, lambda: "the brokers do not come back in sync")

    def _is_in_sync(self) -> bool:
        try:
            partitions = self._admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions.values()
        except KafkaException:
            return False
        return all(partition.leader >= 0 and set(partition.isrs) == set(partition.replicas) for partition in partitions)

    def _come_to_rest(self) -> None:
        """Wait until no transaction is open and no group waits for a departed member; then the job catches up."""
        cluster = Cluster(self._kafka.bootstrap_server)

        def is_at_rest() -> bool:
            try:
                ends = cluster.partition_ends(cluster.topic_partitions()).values()
                groups = self._admin.list_consumer_groups(request_timeout=30).result(30)
            except (ClusterError, KafkaException):
                return False
            is_empty = all(group.state == ConsumerGroupState.EMPTY for group in groups.valid)
            return not groups.errors and is_empty and all(end.last_stable_offset == end.high_watermark for end in ends)

        await_(is_at_rest, lambda: "a transaction stays open, or a group has members")
        if self._job is not None:
            self._job.kill()
        with JobProcess(self._kafka.bootstrap_server, self._folder, "--once") as last:
            assert last.ended() == 0, last.said()

    def _compare(self) -> None:
        server = self._kafka.bootstrap_server
        names = {topic.topic_id: topic.name for topic in Cluster(server).topics()}
        wrong = [] if self._compaction else differences(self._tables, server, names)
        wrong += behind(self._tables, read_topic(server)[1])
        verify = offsetstream("verify", "--history", "--bootstrap-server", server, "--tables", self._tables.root)
        if verify.returncode != 0:
            wrong += [f"verify: {line}" for line in (verify.stdout + verify.stderr).splitlines()]
        self._say("; ".join(verify.stderr.strip().splitlines()[-2:]))
        tables = ("offset_commits", "group_records", "undecodable_records")
        self.figures.records = {name: len(rows(self._tables, name)) for name in tables}
        self.figures.differences = wrong


def chaos(folder: Path, seconds: float, seed: int, say: Callable[[str], None], *, compaction: bool = False) -> Figures:
    """Run it on a separate cluster."""
    with EmbeddedKafka(brokers=3, properties=COMPACTED_LOG if compaction else WHOLE_LOG) as kafka:
        return Chaos(kafka, folder, seed, say, compaction=compaction).run(seconds)


@click.command()
@click.option("--minutes", type=float, default=30.0, show_default=True)
@click.option("--seed", type=int, help="Draws what happens [default: another each time].")
@click.option("--compaction", is_flag=True, help="One replica, a compacted log, more partitions, a job that pauses.")
def main(minutes: float, seed: int | None, compaction: bool) -> None:
    """Kill brokers and the job at random for a while. Prints figures; exit code 1 if the tables differ."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that brokers and job end with this process
    seed = Random().randrange(1_000_000) if seed is None else seed
    click.echo(f"Seed {seed}")
    started = time.monotonic()

    def say(line: str) -> None:
        click.echo(f"{time.monotonic() - started:6.0f} s {line}")

    with tempfile.TemporaryDirectory() as folder:
        figures = chaos(Path(folder) / "job", 60 * minutes, seed, say, compaction=compaction)
    for each in figures.differences:
        click.echo(each)
    click.echo(str(figures))
    raise SystemExit(bool(figures.differences))


if __name__ == "__main__":
    main()
