"""A scripted incident on three brokers: what every view must say is written down first, and asked of both engines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.stream.lifecycle import live
from offsetstream.stream.sampling import rounds
from offsetstream.views.files import all_views
from offsetstream.views.reader import ViewReader
from offsetstream.views.thresholds import THRESHOLDS
from testkit.both_engines import BothEngines
from testkit.tables import arrow_schema
from testkit.view_tables import clock_sql, table_schemas
from tests.kafka.incident.answers import Answers, ask
from tests.kafka.incident.book import Book
from tests.kafka.incident.comparison import differences
from tests.kafka.incident.expected import expected
from tests.kafka.incident.hands import Hands
from tests.kafka.incident.instants import disagreements, instant, random_instants, replayed, stood
from tests.kafka.incident.order import wrong_minutes, wrong_owners
from tests.kafka.incident.script import PROPERTIES, Incident
from tests.kafka.java_clients import java_clients
from tests.kafka.jobs import JobRunner

SEEDS = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Recorded:
    """An incident that is over: its book, the cluster's last answers, and the tables of then."""

    book: Book
    answers: Answers
    runner: JobRunner
    now: datetime

    @property
    def now_ms(self) -> int:
        return int(self.now.timestamp() * 1000)


@pytest.fixture(scope="module", params=SEEDS)
def recorded(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Recorded]:
    book = Book(request.param)
    with pytest.MonkeyPatch.context() as in_a_hurry, ExitStack() as stack:
        in_a_hurry.setattr(rounds, "START_SECONDS", 2.0)
        in_a_hurry.setattr(live, "SAMPLE_SECONDS", 1.0)
        in_a_hurry.setattr(live, "IDLE_REFRESH_SECONDS", 2.0)
        kafka = stack.enter_context(EmbeddedKafka(brokers=3, properties=PROPERTIES))
        clients = stack.enter_context(java_clients(kafka.bootstrap_server, kafka.version))
        runner = JobRunner(spark, kafka.bootstrap_server, tmp_path_factory.mktemp("incident"))
        hands = Hands(kafka, clients, runner, book)
        incident = Incident(hands, book.seed)
        incident.before_the_job()
        with runner.running("1 second", sample_interval=1.0):
            incident.play()
            answers = ask(hands)
            hands.await_applied()
            hands.await_ends(answers.ends)
        yield Recorded(book, answers, runner, datetime.now(UTC))


def write_thresholds(recorded: Recorded) -> None:
    filled = [dict.fromkeys(THRESHOLDS.column_names) | row for row in recorded.book.thresholds]
    data = pa.Table.from_pylist(filled, schema=arrow_schema(THRESHOLDS))
    write_deltalake(Path(recorded.runner.tables.root) / THRESHOLDS.name, data)


def engines(spark: SparkSession, recorded: Recorded) -> BothEngines:
    tables = recorded.runner.tables
    clock = clock_sql(recorded.now).replace("TIMESTAMP ", "TIMESTAMPTZ ")
    frames = {name: spark.read.format("delta").load(f"{tables.root}/{name}") for name in table_schemas()}
    return BothEngines(spark, frames, ViewReader(tables, {"clock": clock}), recorded.now)


def test_every_view_says_what_happened(spark: SparkSession, recorded: Recorded) -> None:
    wanted = expected(recorded.book, recorded.answers, recorded.now_ms)
    assert json.loads(json.dumps(wanted)) == wanted
    write_thresholds(recorded)
    found = engines(spark, recorded).all(recorded.now)
    told = [each for view, rows in wanted.items() for each in differences(view, rows, found[view], recorded.book)]
    told += wrong_minutes(found["lag_history"], recorded.book)
    share_groups = {name for name, row in recorded.answers.groups.items() if row["group_type"] == "Share"}
    told += wrong_owners(found["assignment_intervals"], recorded.book, share_groups)
    assert told == [], "\n".join(told)


def test_any_instant_is_what_the_model_held(spark: SparkSession, recorded: Recorded) -> None:
    book, records, reader = recorded.book, recorded.answers.records, ViewReader(recorded.runner.tables)
    columns = ("history_complete_from",)
    since = max(at for (at,) in recorded.runner.rows("offsets_partitions", *columns))
    instants = random_instants(book, records, int(since.timestamp() * 1000) + 1)
    told, compared = [], 0
    for at_ms in instants:
        held = replayed(book, records, at_ms)
        found = stood(lambda view, at: reader.rows(view, at=at), at_ms)
        told += disagreements(found, held, at_ms)
        compared += len(held["groups"]) + len(held["offsets"])
    assert told == [], "\n".join(told[:50])
    assert compared > 500
    both = engines(spark, recorded)
    for at_ms in instants[:: len(instants) // 4]:
        for view in all_views().values():
            if view.is_at:
                both.view(view, instant(at_ms))
