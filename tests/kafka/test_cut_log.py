"""Logs that were cut and have grown again: neither end offsets nor the tables' records show the cut."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from offsetstream.cluster.client import Cluster
from offsetstream.demo.topics import commit_in_transaction, commit_plainly, create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.stream.lifecycle import live
from offsetstream.stream.lifecycle.live import QueryCheck
from offsetstream.stream.partitions.book import PartitionBook
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


def by_partition(runner: JobRunner, column: str) -> dict[int, Any]:
    return dict(runner.rows("offsets_partitions", "offsets_partition", column))


def end_offset(kafka: EmbeddedKafka) -> int:
    return Cluster(kafka.bootstrap_server).partition_ends([7])[7].last_stable_offset


def commit_group(kafka: EmbeddedKafka, group: str, offset: int) -> None:
    commit_plainly(kafka.bootstrap_server, {group: [TopicPartition("orders", number, offset) for number in (0, 1)]})


def cut_and_grow(kafka: EmbeddedKafka, cut_at: int, behind: int, offset: int) -> None:
    """Cut the log; commit for one group once, and for another until the log has grown past offset `behind`."""
    cut_the_log(kafka, cut_at)
    assert end_offset(kafka) == cut_at
    commit_group(kafka, GROUPS[1], offset)
    while end_offset(kafka) <= behind:
        commit_group(kafka, GROUPS[2], offset)


def at(group: str, offset: int) -> dict[tuple[str, int], int]:
    return {(group, number): offset for number in (0, 1)}


def abort(kafka: EmbeddedKafka) -> None:
    for _ in range(2):
        commit_in_transaction(kafka.bootstrap_server, GROUPS[0], PLACES, abort=True)


@pytest.mark.nightly
def test_a_log_cut_among_aborted_records_is_loaded_again(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    """The next job loads the log, although the last record that the tables have still exists."""
    cut_at = end_offset(kafka)
    abort(kafka)
    runner.run_once()
    applied = by_partition(runner, "next_offset")[7]
    assert applied == end_offset(kafka) > cut_at + 4
    cut_and_grow(kafka, cut_at, applied, 77)
    runner.run_once()
    assert commits(runner).items() >= {**at(GROUPS[1], 77), **at(GROUPS[2], 77)}.items()
    assert by_partition(runner, "log_id") == dict.fromkeys(range(50), 0) | {7: 1}


def test_a_restart_of_the_broker_is_no_cut(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    """Two restarts are no cut either, without a record of the first leader epoch and with an aborted last record."""
    runner.run_once()
    before = {column: by_partition(runner, column) for column in ("log_id", "load_id")}
    abort(kafka)
    runner.run_once()
    for _ in range(2):
        kafka.stop_broker(1)
        kafka.start_broker(1)
        runner.run_once()
    commit(kafka, 80)
    runner.run_once()
    assert {column: by_partition(runner, column) for column in before} == before


def test_a_log_cut_while_the_job_runs_is_loaded_again(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    runner.run_once()
    before, cut_at = by_partition(runner, "log_id"), end_offset(kafka)
    abort(kafka)
    with runner.running():
        runner.await_(lambda: by_partition(runner, "next_offset")[7] == end_offset(kafka))
        cut_and_grow(kafka, cut_at, by_partition(runner, "next_offset")[7], 90)
        runner.await_(lambda: commits(runner).items() >= at(GROUPS[1], 90).items())
    assert by_partition(runner, "log_id") == before | {7: before[7] + 1}


def test_a_log_cut_within_a_read_batch_restarts_the_query(
    runner: JobRunner, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The applied records still exist, so the log is the same, but the batch has records that are gone."""
    original_check, cuts = QueryCheck.before_writing, list[int]()

    def cut_before(check: QueryCheck, *args: Any) -> None:
        if not cuts:
            cuts.append(end_offset(kafka))
            cut_and_grow(kafka, cut_at, cuts[0], 100)
        original_check(check, *args)

    runner.run_once()
    before, cut_at = by_partition(runner, "log_id"), end_offset(kafka)
    for _ in range(2):
        commit_group(kafka, GROUPS[3], 666)
    monkeypatch.setattr(QueryCheck, "before_writing", cut_before)
    checkpoints = runner.said.getvalue().count("Starting checkpoint")
    runner.run_once()
    assert cuts
    assert commits(runner).items() >= at(GROUPS[1], 100).items()
    assert runner.said.getvalue().count("Starting checkpoint") == checkpoints + 1  # of the restarted query
    assert 666 not in commits(runner).values()
    assert by_partition(runner, "log_id") == before


def test_a_cut_after_a_batch_whose_position_was_not_recorded_is_found(
    runner: JobRunner, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All records up to the recorded position still exist, but the tables also have later ones that no log has."""
    runner.run_once()
    cut_at = end_offset(kafka)
    before = by_partition(runner, "log_id")[7]
    for _ in range(2):
        commit_group(kafka, GROUPS[3], 667)
    end, broken = end_offset(kafka), list[int]()

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
    assert by_partition(runner, "log_id")[7] == before + 1


def test_the_query_restarts_when_a_partition_has_a_new_leader_epoch(
    runner: JobRunner, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's consumers may keep records of the previous leader for a later batch."""
    monkeypatch.setattr(live, "SAMPLE_SECONDS", 0.5)
    runner.run_once()
    ids = by_partition(runner, "log_id")
    with runner.running():
        commit(kafka, 119)
        runner.await_(lambda: commits(runner).items() >= at(GROUPS[0], 119).items())
        output_length = len(runner.said.getvalue())
        kafka.stop_broker(1)
        kafka.start_broker(1)
        runner.await_(lambda: "Starting another query" in runner.said.getvalue()[output_length:])
        commit(kafka, 120)
        runner.await_(lambda: commits(runner).items() >= at(GROUPS[0], 120).items())
    assert by_partition(runner, "log_id") == ids
