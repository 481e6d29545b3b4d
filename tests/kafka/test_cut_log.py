"""Logs that were cut behind their last record, and have grown again: no end tells it, and no record of the tables."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from offsetstream.cluster.client import Cluster
from offsetstream.demo.commits import commit_in_transaction, commit_plainly
from offsetstream.demo.topics import create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.stream.lifecycle import live
from offsetstream.stream.lifecycle.query_check import QueryCheck
from offsetstream.stream.partitions.partition_book import PartitionBook
from tests.kafka.jobs import JobRunner
from tests.kafka.partition_seven import GROUPS, commit, commits, cut_the_log

pytestmark = pytest.mark.long

PLACES = [TopicPartition("orders", number, 1) for number in (0, 1)]


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as kafka:
        create_topics(admin_client(kafka.bootstrap_server))
        commit(kafka, 0)
        yield kafka


@pytest.fixture(scope="module")
def runner(spark: SparkSession, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> JobRunner:
    return JobRunner(spark, kafka.bootstrap_server, tmp_path_factory.mktemp("job"))


def of_partitions(runner: JobRunner, column: str) -> dict[int, Any]:
    return dict(runner.rows("offsets_partitions", "offsets_partition", column))


def end_of(kafka: EmbeddedKafka) -> int:
    return Cluster(kafka.bootstrap_server).partition_ends([7])[7].last_stable_offset


def commit_of(kafka: EmbeddedKafka, group: str, offset: int) -> None:
    commit_plainly(kafka.bootstrap_server, {group: [TopicPartition("orders", number, offset) for number in (0, 1)]})


def cut_and_grow(kafka: EmbeddedKafka, cut_at: int, behind: int, offset: int) -> None:
    """Cut the log; its first new records are of a group that commits no more, and the last lie behind an offset."""
    cut_the_log(kafka, cut_at)
    assert end_of(kafka) == cut_at
    commit_of(kafka, GROUPS[1], offset)
    while end_of(kafka) <= behind:
        commit_of(kafka, GROUPS[2], offset)


def at(group: str, offset: int) -> dict[tuple[str, int], int]:
    return {(group, number): offset for number in (0, 1)}


def abort(kafka: EmbeddedKafka) -> None:
    for _ in range(2):
        commit_in_transaction(kafka.bootstrap_server, GROUPS[0], PLACES, abort=True)


@pytest.mark.nightly
def test_a_log_cut_among_aborted_records(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    """Read again by the next job: the last record that the tables have is still there."""
    cut_at = end_of(kafka)
    abort(kafka)
    runner.run_once()
    applied = of_partitions(runner, "next_offset")[7]
    assert applied == end_of(kafka) > cut_at + 4
    cut_and_grow(kafka, cut_at, applied, 77)
    runner.run_once()
    assert commits(runner).items() >= {**at(GROUPS[1], 77), **at(GROUPS[2], 77)}.items()
    assert of_partitions(runner, "log_id") == dict.fromkeys(range(50), 0) | {7: 1}


def test_a_restart_of_the_broker_is_no_cut(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    """Not even twice, without a record of the first leader epoch, and with an aborted one as the last."""
    runner.run_once()
    before = {column: of_partitions(runner, column) for column in ("log_id", "load_id")}
    abort(kafka)
    runner.run_once()
    for _ in range(2):
        kafka.stop_broker(1)
        kafka.start_broker(1)
        runner.run_once()
    commit(kafka, 80)
    runner.run_once()
    assert {column: of_partitions(runner, column) for column in before} == before


def test_a_log_cut_while_the_job_runs(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    runner.run_once()
    before, cut_at = of_partitions(runner, "log_id"), end_of(kafka)
    abort(kafka)
    with runner.running():
        runner.await_(lambda: of_partitions(runner, "next_offset")[7] == end_of(kafka))
        cut_and_grow(kafka, cut_at, of_partitions(runner, "next_offset")[7], 90)
        runner.await_(lambda: commits(runner).items() >= at(GROUPS[1], 90).items())
    assert of_partitions(runner, "log_id") == before | {7: before[7] + 1}


def test_a_log_cut_within_the_batch_that_was_read(
    runner: JobRunner, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was applied is still there, so the log is the same; but the batch has records that are gone."""
    look, cuts = QueryCheck.before_writing, list[int]()

    def cut_before(check: QueryCheck, *args: Any) -> None:
        if not cuts:
            cuts.append(end_of(kafka))
            cut_and_grow(kafka, cut_at, cuts[0], 100)
        look(check, *args)

    runner.run_once()
    before, cut_at = of_partitions(runner, "log_id"), end_of(kafka)
    for _ in range(2):
        commit_of(kafka, GROUPS[3], 666)
    monkeypatch.setattr(QueryCheck, "before_writing", cut_before)
    checkpoints = runner.said.getvalue().count("Starting checkpoint")
    runner.run_once()
    assert cuts
    assert commits(runner).items() >= at(GROUPS[1], 100).items()
    assert runner.said.getvalue().count("Starting checkpoint") == checkpoints + 1  # of the query that was begun anew
    assert 666 not in commits(runner).values()
    assert of_partitions(runner, "log_id") == before


def test_a_batch_that_was_written_and_not_noted_before_the_log_was_cut(
    runner: JobRunner, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that was noted as applied is gone; but the tables have more than that, which no log has any more."""
    runner.run_once()
    cut_at = end_of(kafka)
    before = of_partitions(runner, "log_id")[7]
    for _ in range(2):
        commit_of(kafka, GROUPS[3], 667)
    end, broken = end_of(kafka), list[int]()

    def die(*_: Any) -> None:
        broken.append(1)
        raise OSError("no room")

    with monkeypatch.context() as dying:
        dying.setattr(PartitionBook, "advance", die)
        with pytest.raises(Exception, match="no room"):
            runner.run_once()
    assert broken
    assert 667 in commits(runner).values()
    cut_and_grow(kafka, cut_at, end, 110)
    runner.run_once()
    assert commits(runner).items() >= at(GROUPS[1], 110).items()
    assert 667 not in commits(runner).values()
    assert of_partitions(runner, "log_id")[7] == before + 1


def test_a_query_ends_where_the_main_loop_sees_a_partition_led_anew(
    runner: JobRunner, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's consumers may keep what the leader of before gave them, for a later batch."""
    monkeypatch.setattr(live, "SAMPLE_SECONDS", 0.5)
    runner.run_once()
    ids = of_partitions(runner, "log_id")
    with runner.running():
        commit(kafka, 119)
        runner.await_(lambda: commits(runner).items() >= at(GROUPS[0], 119).items())
        said = len(runner.said.getvalue())
        kafka.stop_broker(1)
        kafka.start_broker(1)
        runner.await_(lambda: "Starting another query" in runner.said.getvalue()[said:])
        commit(kafka, 120)
        runner.await_(lambda: commits(runner).items() >= at(GROUPS[0], 120).items())
    assert of_partitions(runner, "log_id") == ids
