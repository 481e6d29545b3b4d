"""A scripted incident on three brokers: what every view must say is written down first, and asked of both engines."""

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
    blocked_otherwise,
    disagreements,
    instant,
    random_instants,
    replayed,
    stood,
)
from tests.kafka.incident.order import wrong_minutes, wrong_owners
from tests.kafka.incident.recording import Recorded

pytestmark = pytest.mark.nightly


def engines(spark: SparkSession, recorded: Recorded) -> BothEngines:
    tables = recorded.runner.tables
    clock = clock_sql(recorded.now).replace("TIMESTAMP ", "TIMESTAMPTZ ")
    frames = {name: spark.read.format("delta").load(f"{tables.root}/{name}") for name in table_schemas()}
    return BothEngines(spark, frames, ViewReader(tables, {"clock": clock}), recorded.now)


def test_every_view_says_what_happened(spark: SparkSession, recorded: Recorded) -> None:
    found = engines(spark, recorded).all(recorded.now)
    looked_ms = min(row["as_of"] for row in found["freshness"]) // 1000
    wanted = expected(recorded.book, recorded.answers, recorded.now_ms, looked_ms)
    assert json.loads(json.dumps(wanted)) == wanted
    told = [each for view, rows in wanted.items() for each in differences(view, rows, found[view], recorded.book)]
    told += wrong_minutes(found["lag_history"], recorded.book)
    share_groups = {name for name, row in recorded.answers.groups.items() if row["group_type"] == "Share"}
    told += wrong_owners(found["assignment_intervals"], recorded.book, share_groups)
    assert told == [], "\n".join(told)


def samples_of_the_topic(recorded: Recorded) -> list[tuple[int, int, int, int]]:
    """Partition, time (ms), last stable offset and high watermark of each sample of __consumer_offsets."""
    columns = ("topic", "partition", "sampled_at", "last_stable_offset", "high_watermark")
    found = recorded.runner.rows("end_offsets", *columns)
    return [
        (number, round(at.timestamp() * 1000), stable, high)
        for topic, number, at, stable, high in found
        if topic == "__consumer_offsets"
    ]


def test_any_instant_is_what_the_model_held(spark: SparkSession, recorded: Recorded) -> None:
    book, records, reader = recorded.book, recorded.answers.records, ViewReader(recorded.runner.tables)
    complete_from = dict(recorded.runner.rows("offsets_partitions", "offsets_partition", "history_complete_from"))
    of_the_new_log = complete_from.pop(book.cut["offsets_partition"])
    assert instant(book.cut["began_ms"]) < of_the_new_log <= instant(book.cut["seen_ms"])
    since_ms = int(max(complete_from.values()).timestamp() * 1000) + 1
    instants = random_instants(book, records, since_ms, blocked_otherwise(book, samples_of_the_topic(recorded)))
    told, compared = [], 0
    for at_ms in instants:
        held = replayed(book, records, at_ms)
        found = stood(lambda view, at: reader.rows(view, at=at), book, at_ms)
        told += disagreements(found, held, at_ms)
        compared += len(held["groups"]) + len(held["offsets"])
    assert told == [], "\n".join(told[:50])
    assert compared > 500
    both = engines(spark, recorded)
    for at_ms in instants[:: len(instants) // 4]:
        for view in all_views().values():
            if view.is_at:
                both.view(view, instant(at_ms))


def test_the_log_that_was_cut_is_kept_beside_the_new_one(recorded: Recorded) -> None:
    number = recorded.book.cut["offsets_partition"]
    columns = ("offsets_partition", "log_id", "record_offset", "record_timestamp")
    found = [row for name in ("offset_commits", "group_records") for row in recorded.runner.rows(name, *columns)]
    for log_id, records in enumerate((recorded.answers.lost_log, recorded.answers.records)):
        wanted = [(number, log_id, record.offset, instant(record.timestamp_ms or 0)) for record in records[number]]
        assert sorted(row for row in found if row[:2] == (number, log_id)) == wanted
    assert {log_id for n, log_id, *_ in found if n != number} == {0}
    groups = set(recorded.runner.rows("offset_commits", "offsets_partition", "group_id"))
    assert {group for n, group in groups if n == number} == {commit.cell.group for commit in recorded.book.lost}
