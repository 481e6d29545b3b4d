"""The job while its cluster is away, compacted, cut, recreated or replaced by another one (rule 5; reference 10)."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions
from pyspark.sql import SparkSession

from offsetstream.cluster import connection
from offsetstream.cluster.client import Cluster
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.codec.records import encode_record
from offsetstream.demo.topics import create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.ports import free_ports
from offsetstream.errors import OtherClusterError, UnreachableError
from offsetstream.stream.lifecycle import live, patience
from offsetstream.stream.lifecycle.live import QueryCheck
from offsetstream.stream.monitor.watch import Observer
from offsetstream.tables.lease import request_reload
from testkit.garbage import produce
from testkit.waiting import SECONDS
from tests.kafka.jobs import JobRunner
from tests.kafka.partition_seven import all_at, commit, commits, is_loaded, load_ids, set_topic_config
from tests.kafka.quick_compaction import CLEANER, offsets_in_log

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def kafka(port: int) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(port=port, properties=CLEANER) as kafka:
        create_topics(admin_client(kafka.bootstrap_server))
        commit(kafka, 0)
        yield kafka


@pytest.fixture(scope="module")
def runner(spark: SparkSession, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> JobRunner:
    return JobRunner(spark, kafka.bootstrap_server, tmp_path_factory.mktemp("job"))


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "SAMPLE_SECONDS", 0.5)
    monkeypatch.setattr(connection, "TIMEOUT", 5.0)
    monkeypatch.setattr(patience, "LONGEST_PAUSE", 2.0)


def said(runner: JobRunner, words: str) -> bool:
    return words in runner.said.getvalue()


def log_ids(runner: JobRunner) -> dict[int, int]:
    return dict(runner.rows("offsets_partitions", "offsets_partition", "log_id"))


def offsets_in_history(runner: JobRunner, log_id: int = 0) -> set[int]:
    found = runner.rows("offset_commits", "log_id", "offsets_partition", "record_offset")
    assert len(found) == len(set(found))
    return {offset for log, partition, offset in found if (log, partition) == (log_id, 7)}


def applied(runner: JobRunner) -> int:
    offset: int = dict(runner.rows("offsets_partitions", "offsets_partition", "next_offset"))[7]
    return offset


def has_all(runner: JobRunner, kafka: EmbeddedKafka) -> bool:
    return applied(runner) >= Cluster(kafka.bootstrap_server).partition_ends([7])[7].last_stable_offset


def test_the_job_waits_for_a_missing_cluster_at_its_start_and_later(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    kafka.stop_broker(1)
    with runner.running():
        runner.await_(lambda: said(runner, "retrying in"))
        kafka.start_broker(1)
        runner.await_(lambda: is_loaded(runner) and commits(runner) == all_at(0))

        kafka.stop_broker(1)  # Spark's query just waits
        runner.await_(lambda: said(runner, "Cannot reach the group coordinators"))
        kafka.start_broker(1)
        commit(kafka, 1)
        runner.await_(lambda: commits(runner) == all_at(1))
        assert set(load_ids(runner).values()) == {1}

        runner.await_(lambda: has_all(runner, kafka))  # a reading batch would wait for longer than this test
        kafka.stop_broker(1)
        request_reload(runner.tables, [7])  # a load cannot wait: the job restarts when the cluster answers
        runner.await_(lambda: said(runner, "continuing when it answers"))
        kafka.start_broker(1)
        commit(kafka, 2)
        runner.await_(lambda: commits(runner) == all_at(2))

        kafka.stop_broker(1)
    kafka.start_broker(1)  # the job ended without the broker
    assert set(log_ids(runner).values()) == {0}
    assert set(offsets_in_log(kafka)) <= offsets_in_history(runner)


def test_the_job_gives_up_after_the_configured_time(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    kafka.stop_broker(1, kill=True)
    with pytest.raises(UnreachableError, match="no broker answers at"):
        runner.job(max_silence=timedelta(0)).run()
    kafka.start_broker(1)


@pytest.mark.nightly
def test_compaction_does_not_change_the_result(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    with runner.running():
        for offset in range(3, 30):
            commit(kafka, offset)
        runner.await_(lambda: commits(runner) == all_at(29))
    assert len(offsets_in_log(kafka)) < applied(runner)
    assert set(log_ids(runner).values()) == {0}
    assert set(offsets_in_log(kafka)) <= offsets_in_history(runner)


def test_records_deleted_before_they_were_read_cause_a_load(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    """A wrong cleanup policy deletes them, because Kafka refuses DeleteRecords on this topic."""
    commit(kafka, 40)
    set_topic_config(kafka, cleanup_policy="compact,delete", retention_ms="1")
    cluster = Cluster(kafka.bootstrap_server)
    runner.await_(lambda: cluster.partition_ends([7])[7].log_start_offset > applied(runner))
    set_topic_config(kafka, cleanup_policy="compact", retention_ms="-1")
    before = load_ids(runner)
    runner.run_once()
    assert load_ids(runner) == before | {7: before[7] + 1}
    assert commits(runner) == {}  # the state that a broker would load now
    assert log_ids(runner)[7] == 0  # offsets still identify the same records
    commit(kafka, 41)
    runner.run_once()
    assert commits(runner) == all_at(41)


def test_a_deletion_found_just_before_the_cluster_fell_silent_causes_a_load(
    runner: JobRunner, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion that the batch's check found is not forgotten when the next check gets no answer."""
    cluster, before, look_calls = Cluster(kafka.bootstrap_server), load_ids(runner), list[int]()
    original_look, before_writing = Observer.look, QueryCheck.before_writing

    def delete_first(check: QueryCheck, *args: Any) -> None:
        if not look_calls:
            set_topic_config(kafka, cleanup_policy="compact,delete", retention_ms="1")
            runner.await_(lambda: cluster.partition_ends([7])[7].log_start_offset > applied(runner))
            set_topic_config(kafka, cleanup_policy="compact", retention_ms="-1")
            look_calls.append(0)
        before_writing(check, *args)

    def look_once(observer: Observer) -> Any:
        look_calls.extend([len(look_calls)] if look_calls else [])
        is_silent = len(look_calls) > 2 and load_ids(runner) == before
        return None if is_silent else original_look(observer)

    monkeypatch.setattr(QueryCheck, "before_writing", delete_first)
    monkeypatch.setattr(Observer, "look", look_once)
    commit(kafka, 42)
    runner.run_once()
    assert len(look_calls) > 2
    assert load_ids(runner) == before | {7: before[7] + 1}
    assert log_ids(runner)[7] == 0


def test_added_partitions_are_loaded(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    """Brokers place groups there after a restart, and load records that are already there."""
    admin = admin_client(kafka.bootstrap_server)
    with runner.running():
        runner.await_(lambda: runner.rows("job_lease", "owner") != [(None,)])
        admin.create_partitions([NewPartitions(OFFSETS_TOPIC, 52)])[OFFSETS_TOPIC].result(SECONDS)
        runner.await_(lambda: said(runner, "Restarting: the topic has 52 partitions, not 50"))
        key, value = encode_record(
            {"type": 1, "data": {"group": "stray", "topic": "orders", "partition": 0}},
            {"version": 3, "data": {"offset": 5, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 0}},
        )
        produce(kafka.bootstrap_server, iter([(51, key, value)]))
        runner.await_(lambda: groups_of(runner, 51) == ["stray"])
    assert log_ids(runner) == dict.fromkeys(range(52), 0)


def groups_of(runner: JobRunner, partition: int) -> list[str]:
    found = runner.rows("committed_offsets", "offsets_partition", "group_id")
    return [group_id for number, group_id in found if number == partition]


def test_a_recreated_topic_is_loaded_as_a_new_log(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    """Only the topic's id shows it: the log has grown past the applied offset, and its leader epochs start again.

    The topic has 50 partitions again: the rows of the other partitions disappear with them.
    """
    enough = 2 + applied(runner) // len(all_at(0))
    admin = admin_client(kafka.bootstrap_server)
    admin.delete_topics([OFFSETS_TOPIC])[OFFSETS_TOPIC].result(SECONDS)
    kafka.restart()  # otherwise the coordinator continues with its state in memory
    for offset in range(enough):
        commit(kafka, 100 + offset)
    runner.run_once()
    assert log_ids(runner) == dict.fromkeys(range(50), 1)
    assert groups_of(runner, 51) == []
    assert [number for number, _, event in events(runner) if event == "removed"] == [50, 51]
    assert commits(runner) == all_at(100 + enough - 1)
    assert set(offsets_in_log(kafka)) <= offsets_in_history(runner, log_id=1)


def events(runner: JobRunner) -> list[tuple[int, int, str]]:
    return runner.rows("partition_events", "offsets_partition", "log_id", "event")


def test_partitions_that_are_added_again_have_a_new_log(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    admin = admin_client(kafka.bootstrap_server)
    admin.create_partitions([NewPartitions(OFFSETS_TOPIC, 52)])[OFFSETS_TOPIC].result(SECONDS)
    runner.run_once()
    assert log_ids(runner) == dict.fromkeys(range(52), 1)


def test_another_cluster_at_the_same_address_ends_the_job(runner: JobRunner, kafka: EmbeddedKafka, port: int) -> None:
    before = commits(runner)
    with pytest.raises(OtherClusterError, match="is now another cluster"), runner.running() as job:
        runner.await_(lambda: runner.rows("job_lease", "owner") != [(None,)])
        runner.await_(lambda: said(runner, "Continuing from checkpoint"))
        kafka.close()
        with EmbeddedKafka(port=port) as other_kafka:
            create_topics(admin_client(other_kafka.bootstrap_server))
            commit(other_kafka, 999)
            runner.await_(lambda: runner.rows("job_lease", "owner") == [(None,)])
        job.stop()
    assert commits(runner) == before
