"""Retention deletes records of the offsets topic (cleanup.policy=compact,delete) that coordinators keep in memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from offsetstream.cli.main import main
from offsetstream.cluster.client import Cluster
from offsetstream.demo.topics import commit_plainly, create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.stream.lifecycle import live
from testkit.waiting import await_
from tests.kafka.jobs import JobRunner
from tests.kafka.partition_seven import set_topic_config

pytestmark = pytest.mark.long

OLD = [f"old-{number}" for number in range(6)]
NEW = [f"new-{number}" for number in range(6)]
WARNING = "cleanup.policy of __consumer_offsets is compact,delete"


@pytest.fixture
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(properties={"offsets.topic.num.partitions": "4", "log.cleaner.backoff.ms": "200"}) as kafka:
        create_topics(admin_client(kafka.bootstrap_server))
        commit(kafka, OLD)
        set_topic_config(kafka, cleanup_policy="compact,delete")
        yield kafka


def commit(kafka: EmbeddedKafka, groups: list[str]) -> None:
    commit_plainly(kafka.bootstrap_server, {group: [TopicPartition("orders", 0, 1)] for group in groups})


def retention_takes_all(kafka: EmbeddedKafka) -> None:
    cluster = Cluster(kafka.bootstrap_server)
    set_topic_config(kafka, retention_ms="1")
    await_(lambda: all(end.log_start_offset == end.high_watermark for end in cluster.partition_ends(range(4)).values()))
    set_topic_config(kafka, retention_ms="-1")


def groups(runner: JobRunner) -> set[object]:
    return runner.values("committed_offsets", "group_id")


def verify(runner: JobRunner, kafka: EmbeddedKafka) -> Result:
    arguments = ["verify", "--tables", runner.tables.root, "--bootstrap-server", kafka.bootstrap_server]
    return CliRunner().invoke(main, arguments)


def test_rows_disappear_when_the_coordinators_lose_them(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SAMPLE_SECONDS", 0.5)
    runner = JobRunner(spark, kafka.bootstrap_server, tmp_path)
    with runner.running():
        runner.await_(lambda: "Starting checkpoint" in runner.said.getvalue() and groups(runner) == set(OLD))
        retention_takes_all(kafka)
        commit(kafka, NEW)
        runner.await_(lambda: groups(runner) == {*OLD, *NEW})
        result = verify(runner, kafka)
        assert result.exit_code == 0, result.output
        assert "retention" not in result.output  # there is no difference to explain

        kafka.restart()
        runner.await_(lambda: groups(runner) == set(NEW))
        result = verify(runner, kafka)
        assert result.exit_code == 0, result.output
    assert runner.said.getvalue().count(WARNING) == 1


def test_verify_explains_records_deleted_before_the_first_load(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    retention_takes_all(kafka)
    commit(kafka, NEW)
    runner = JobRunner(spark, kafka.bootstrap_server, tmp_path)
    runner.run_once()
    assert groups(runner) == set(NEW)
    result = verify(runner, kafka)
    assert result.exit_code == 0, result.output
    assert "a coordinator keeps records that retention deleted until it moves or restarts" in result.output

    kafka.restart()
    result = verify(runner, kafka)
    assert result.exit_code == 0, result.output
    assert "retention" not in result.output


def test_a_coordinator_move_while_no_job_ran_is_noticed(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    runner = JobRunner(spark, kafka.bootstrap_server, tmp_path)
    runner.run_once()
    retention_takes_all(kafka)
    kafka.restart()
    result = verify(runner, kafka)
    assert result.exit_code == 0, result.output  # explained, until a job checks
    runner.run_once()
    assert groups(runner) == set()
    assert verify(runner, kafka).exit_code == 0
