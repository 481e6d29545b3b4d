"""Plays the incident on three brokers while the job runs, and keeps the book, the answers and the tables."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.stream.lifecycle import live
from offsetstream.stream.sampling import sampler
from offsetstream.tables.schema import THRESHOLDS
from testkit.tables import append_rows
from tests.kafka.incident.actions import Actions
from tests.kafka.incident.answers import Answers, ask_cluster
from tests.kafka.incident.book import Book
from tests.kafka.incident.script import PROPERTIES, Incident
from tests.kafka.java_clients import java_clients
from tests.kafka.jobs import JobRunner


@dataclass(frozen=True)
class Recorded:
    """A finished incident: its book, the cluster's last answers, and the tables at its end."""

    book: Book
    answers: Answers
    runner: JobRunner
    since: datetime
    now: datetime

    @property
    def now_ms(self) -> int:
        return int(self.now.timestamp() * 1000)

    @property
    def tables(self) -> Path:
        return Path(self.runner.tables.root)


def record(spark: SparkSession, folder: Path, seed: int, script: type[Incident] = Incident) -> Recorded:
    """Play the incident and stop its brokers."""
    book = Book(seed)
    with pytest.MonkeyPatch.context() as quick_sampling, ExitStack() as stack:
        quick_sampling.setattr(sampler, "START_SECONDS", 2.0)
        quick_sampling.setattr(live, "SAMPLE_SECONDS", 1.0)
        quick_sampling.setattr(live, "IDLE_REFRESH_SECONDS", 2.0)
        kafka = stack.enter_context(EmbeddedKafka(brokers=3, properties=PROPERTIES))
        clients = stack.enter_context(java_clients(kafka.bootstrap_server, kafka.version))
        runner = JobRunner(spark, kafka.bootstrap_server, folder)
        actions = Actions(kafka, clients, runner, book)
        incident, since = script(actions, seed), datetime.now(UTC)
        incident.before_the_job()
        with runner.running("1 second", sample_interval=1.0):
            incident.play()
            answers = ask_cluster(actions)
            actions.await_applied()
            actions.await_ends(answers.ends)
        now = datetime.now(UTC)
    recorded = Recorded(book, answers, runner, since, now)
    append_rows(recorded.tables, THRESHOLDS.name, book.thresholds)
    return recorded
