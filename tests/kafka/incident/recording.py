"""Plays the incident on three brokers while the job writes what it sees, and keeps what is left of it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.stream.lifecycle import live
from offsetstream.stream.sampling import rounds
from offsetstream.tables.optional_tables import THRESHOLDS
from testkit.tables import append_rows
from tests.kafka.incident.answers import Answers, ask
from tests.kafka.incident.book import Book
from tests.kafka.incident.hands import Hands
from tests.kafka.incident.script import PROPERTIES, Incident
from tests.kafka.java_clients import java_clients
from tests.kafka.jobs import JobRunner


@dataclass(frozen=True)
class Recorded:
    """An incident that is over: its book, the cluster's last answers, and the tables of then."""

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
    """Play it; the brokers are gone when it is over."""
    book = Book(seed)
    with pytest.MonkeyPatch.context() as in_a_hurry, ExitStack() as stack:
        in_a_hurry.setattr(rounds, "START_SECONDS", 2.0)
        in_a_hurry.setattr(live, "SAMPLE_SECONDS", 1.0)
        in_a_hurry.setattr(live, "IDLE_REFRESH_SECONDS", 2.0)
        kafka = stack.enter_context(EmbeddedKafka(brokers=3, properties=PROPERTIES))
        clients = stack.enter_context(java_clients(kafka.bootstrap_server, kafka.version))
        runner = JobRunner(spark, kafka.bootstrap_server, folder)
        hands = Hands(kafka, clients, runner, book)
        incident, since = script(hands, seed), datetime.now(UTC)
        incident.before_the_job()
        with runner.running("1 second", sample_interval=1.0):
            incident.play()
            answers = ask(hands)
            hands.await_applied()
            hands.await_ends(answers.ends)
        now = datetime.now(UTC)
    recorded = Recorded(book, answers, runner, since, now)
    append_rows(recorded.tables, THRESHOLDS.name, book.thresholds)
    return recorded
