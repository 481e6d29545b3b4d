"""A scripted incident on three brokers: every view, in both engines, has the rows computed from the script's book."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from offsetstream.views.files import all_views
from offsetstream.views.reader import ViewReader
from testkit.engines import BothEngines
from testkit.tables import clock_sql, table_schemas
from tests.kafka.incident.comparison import differences
from tests.kafka.incident.expected import expected
from tests.kafka.incident.instants import (
    disagreements,
    instant,
    intervals_of_other_transactions,
    model_state,
    random_instants,
    view_state,
)
from tests.kafka.incident.order import wrong_minutes, wrong_owners
from tests.kafka.incident.recording import Recorded

pytestmark = pytest.mark.nightly


def engines(spark: SparkSession, recorded: Recorded) -> BothEngines:
    tables = recorded.runner.tables
    clock = clock_sql(recorded.now).replace("TIMESTAMP ", "TIMESTAMPTZ ")
    frames = {name: spark.read.format("delta").load(f"{tables.root}/{name}") for name in table_schemas()}
    return BothEngines(spark, frames, ViewReader(tables, {"clock": clock}), recorded.now)


def test_every_view_shows_what_happened(spark: SparkSession, recorded: Recorded) -> None:
    actual = engines(spark, recorded).all(recorded.now)
    looked_ms = min(row["as_of"] for row in actual["freshness"]) // 1000
    expected_rows = expected(recorded.book, recorded.answers, recorded.now_ms, looked_ms)
    assert json.loads(json.dumps(expected_rows)) == expected_rows
    problems = [
        each for view, rows in expected_rows.items() for each in differences(view, rows, actual[view], recorded.book)
    ]
    problems += wrong_minutes(actual["lag_history"], recorded.book)
    share_groups = {name for name, row in recorded.answers.groups.items() if row["group_type"] == "Share"}
    problems += wrong_owners(actual["assignment_intervals"], recorded.book, share_groups)
    assert problems == [], "\n".join(problems)


def samples_of_the_topic(recorded: Recorded) -> list[tuple[int, int, int, int]]:
    """Return (partition, time in ms, last stable offset, high watermark) of each sample of __consumer_offsets."""
    columns = ("topic", "partition", "sampled_at", "last_stable_offset", "high_watermark")
    actual = recorded.runner.rows("end_offsets", *columns)
    return [
        (number, round(at.timestamp() * 1000), stable, high)
        for topic, number, at, stable, high in actual
        if topic == "__consumer_offsets"
    ]


def test_views_at_any_instant_equal_the_model(spark: SparkSession, recorded: Recorded) -> None:
    book, records, reader = recorded.book, recorded.answers.records, ViewReader(recorded.runner.tables)
    complete_from = dict(recorded.runner.rows("offsets_partitions", "offsets_partition", "history_complete_from"))
    complete_from_of_new_log = complete_from.pop(book.cut["offsets_partition"])
    assert instant(book.cut["began_ms"]) < complete_from_of_new_log <= instant(book.cut["seen_ms"])
    since_ms = int(max(complete_from.values()).timestamp() * 1000) + 1
    instants = random_instants(
        book, records, since_ms, intervals_of_other_transactions(book, samples_of_the_topic(recorded))
    )
    problems, compared = [], 0
    for at_ms in instants:
        expected_state = model_state(book, records, at_ms)
        actual = view_state(lambda view, at: reader.rows(view, at=at), book, at_ms)
        problems += disagreements(actual, expected_state, at_ms)
        compared += len(expected_state["groups"]) + len(expected_state["offsets"])
    assert problems == [], "\n".join(problems[:50])
    assert compared > 500
    both_engines = engines(spark, recorded)
    for at_ms in instants[:: len(instants) // 4]:
        for view in all_views().values():
            if view.is_at:
                both_engines.view(view, instant(at_ms))


def test_history_keeps_the_cut_log_next_to_the_new_one(recorded: Recorded) -> None:
    number = recorded.book.cut["offsets_partition"]
    columns = ("offsets_partition", "log_id", "record_offset", "record_timestamp")
    actual = [row for name in ("offset_commits", "group_records") for row in recorded.runner.rows(name, *columns)]
    for log_id, records in enumerate((recorded.answers.lost_log, recorded.answers.records)):
        expected_rows = [
            (number, log_id, record.offset, instant(record.timestamp_ms or 0)) for record in records[number]
        ]
        assert sorted(row for row in actual if row[:2] == (number, log_id)) == expected_rows
    assert {log_id for n, log_id, *_ in actual if n != number} == {0}
    groups = set(recorded.runner.rows("offset_commits", "offsets_partition", "group_id"))
    assert {group for n, group in groups if n == number} == {commit.cell.group for commit in recorded.book.lost}
