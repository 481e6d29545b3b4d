"""What tables say about the present: an idle job keeps sampling, a dead one does not, a case has its own present."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

import offsetstream
from offsetstream.demo.topics import commit_plainly
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.live_logs import create_topic, numbered, write
from testkit.processes import Done, within
from testkit.waiting import await_
from tests.kafka.jobs import JobRunner

TOPIC, GROUP = "orders", "billing"


@pytest.fixture
def runner(spark: SparkSession, tmp_path: Path) -> Iterator[JobRunner]:
    """A job on a cluster where nothing changes any more, with a group that has read everything."""
    with EmbeddedKafka() as kafka:
        create_topic(kafka.bootstrap_server, TOPIC, 1)
        write(kafka.bootstrap_server, TOPIC, *numbered(10), partition=0)
        commit_plainly(kafka.bootstrap_server, {GROUP: [TopicPartition(TOPIC, 0, 10)]})
        yield JobRunner(spark, kafka.bootstrap_server, tmp_path)


def status(runner: JobRunner, *options: str) -> tuple[Done, dict[str, Any]]:
    done = within("groups", "status", "--group", GROUP, "--tables", runner.tables.root, "--output", "json", *options)
    (row,) = json.loads(done.stdout)
    return done, row


def oldest_sample(runner: JobRunner) -> datetime:
    found: list[datetime] = offsetstream.open_tables(runner.tables.root).freshness()["as_of"].to_pylist()
    assert len(found) == 50
    return min(found)


def test_a_dead_job_is_reported_and_an_idle_one_is_not(runner: JobRunner) -> None:
    runner.run_once()
    with runner.running(sample_interval=1.0):
        first = oldest_sample(runner)
        await_(lambda: oldest_sample(runner) > first)
        first = oldest_sample(runner)
        await_(lambda: oldest_sample(runner) > first)  # nobody commits, and the job keeps sampling
        await_(lambda: status(runner)[1]["verdict"] == "ok")
        done, row = status(runner)
        assert (done.returncode, "STALE" in done.stderr, row["stale"]) == (0, False, False)
    await_(lambda: status(runner, "--max-age", "1")[1]["stale"])
    done, row = status(runner, "--max-age", "1")
    assert (done.returncode, row["verdict"], row["level"]) == (5, "unknown", "UNKNOWN")
    assert row["reason"].startswith("nothing is known of the last ")
    assert done.stderr.startswith("STALE: nothing is known of the last ")
    assert status(runner, "--max-age", "none")[0].returncode == 0

    ended = within("maintain", "--end", "--tables", runner.tables.root)
    assert ended.returncode == 0, ended.stderr
    done, row = status(runner, "--max-age", "1")
    assert (done.returncode, row["verdict"], row["stale"]) == (0, "ok", False)
    assert done.stderr.startswith("No job updates these tables any more: they end at ")

    runner.run_once()
    (cluster,) = offsetstream.open_tables(runner.tables.root).read("cluster").to_pylist()
    assert (cluster["ended_at"], cluster["sample_interval_ms"]) == (None, None)
    assert status(runner)[0].stderr.startswith("0 of 1 group")
