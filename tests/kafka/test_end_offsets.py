"""End offsets sampled from a real broker: growth, transactions, deleted and recreated topics."""

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic
from pyspark.sql import SparkSession

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.cluster.client import Cluster
from offsetstream.cluster.log_ends import LogEnd, LogEnds, NoEnd, RecordTimes, TopicPartitionKey
from offsetstream.codec.records import encode_record
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.topics import commit_plainly
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.stream.sampling import sample_book, sampler
from offsetstream.views.reader import ViewReader
from testkit import garbage
from testkit.waiting import SECONDS, await_
from tests.kafka.jobs import JobRunner

TOPIC, LOST = "sampled", 2
COLUMNS = ("partition", "log_start_offset", "high_watermark", "last_stable_offset", "error")


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=3) as kafka:
        create(kafka, "first", [[1]])
        commit(kafka, "first", 0)
        yield kafka


@pytest.fixture
def runner(spark: SparkSession, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> JobRunner:
    return JobRunner(spark, kafka.bootstrap_server, tmp_path_factory.mktemp("job"))


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "START_SECONDS", 1.0)
    monkeypatch.setattr(sampler, "_PAUSE", 1)
    monkeypatch.setattr(sample_book, "_BLOCKED", timedelta(seconds=1))


def create(kafka: EmbeddedKafka, topic: str, assignment: list[list[int]]) -> None:
    admin, new = admin_client(kafka.bootstrap_server), NewTopic(topic, len(assignment), replica_assignment=assignment)
    admin.create_topics([new])[topic].result(SECONDS)


def commit(kafka: EmbeddedKafka, topic: str, *partitions: int) -> None:
    commit_plainly(kafka.bootstrap_server, {"reader": [TopicPartition(topic, number, 0) for number in partitions]})


def produce(kafka: EmbeddedKafka, topic: str, partition: int, count: int, **properties: str) -> Producer:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_server, **properties})
    if properties:
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
    for _ in range(count):
        producer.produce(topic, b"value", partition=partition)
    producer.flush(SECONDS)
    return producer


def sampled(runner: JobRunner, topic: str, *columns: str) -> list[tuple[Any, ...]]:
    if runner.tables.opened("topic_partitions") is None:  # the job has just started
        return []
    names = columns or COLUMNS
    found = runner.rows("topic_partitions", "topic", *names)
    return [row[1:] for row in found if row[0] == topic]


def recorded(runner: JobRunner, topic: str, *columns: str) -> list[tuple[Any, ...]]:
    found = runner.rows("end_offsets", "topic", "sampled_at", *columns)
    return [row[2:] for row in sorted(found, key=lambda row: row[1]) if row[0] == topic]


def test_growth_blocking_and_new_partitions_are_sampled(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    create(kafka, TOPIC, [[1], [1]])
    commit(kafka, TOPIC, 0)
    with runner.running(sample_interval=0.5):
        runner.await_(lambda: sampled(runner, TOPIC) == [(0, 0, 0, 0, None)])
        (topic_id,) = {row[0] for row in sampled(runner, TOPIC, "topic_id")}
        assert topic_id == Cluster(kafka.bootstrap_server).topic_id(TOPIC)
        assert sampled(runner, TOPIC, "leader_id", "leader_epoch") == [(1, 0)]

        produce(kafka, TOPIC, 0, 5)
        runner.await_(lambda: sampled(runner, TOPIC) == [(0, 0, 5, 5, None)])
        producer = produce(kafka, TOPIC, 0, 3, **{"transactional.id": "blocked"})
        runner.await_(lambda: sampled(runner, TOPIC) == [(0, 0, 8, 5, None)])
        producer.commit_transaction(30)
        runner.await_(lambda: sampled(runner, TOPIC) == [(0, 0, 9, 9, None)])

        admin = admin_client(kafka.bootstrap_server)
        admin.create_partitions([NewPartitions(TOPIC, 3)])[TOPIC].result(SECONDS)
        commit(kafka, TOPIC, 1, 2)
        runner.await_(lambda: [row[0] for row in sampled(runner, TOPIC)] == [0, 1, 2])
        assert len(sampled(runner, "__consumer_offsets")) == 50
    ends = recorded(runner, TOPIC, "partition", "high_watermark", "last_stable_offset", "previous_sampled_at")
    # The last stable offset is queried later, so a row of its own may show its move. A sample may see the log
    # between two of the records that were written together.
    assert {row[1]: row[2] for row in ends if row[0] == 0}.items() >= {0: 0, 5: 5, 8: 5, 9: 9}.items()
    assert [number for number, row in enumerate(row for row in ends if row[0] == 0) if row[3] is None] == [0]


def test_a_transaction_marker_is_no_lag(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    """A group that has read all records has no lag, whether its offset is that of the marker or behind it."""
    create(kafka, "marked", [[1], [1], [1]])
    for number, ended in enumerate(("commit", "commit", "abort")):
        producer = produce(kafka, "marked", number, 3, **{"transactional.id": f"marks-{number}"})
        producer.commit_transaction(SECONDS) if ended == "commit" else producer.abort_transaction(SECONDS)
    offsets = {"next": 3, "stands": 4, "early": 1}  # records 0 to 2, and a marker at 3
    for group, offset in offsets.items():
        places = [TopicPartition("marked", number, offset) for number in range(3)]
        commit_plainly(kafka.bootstrap_server, {group: places})
    with runner.running(sample_interval=0.5):
        runner.await_(lambda: sampled(runner, "marked", "partition", "readable_end") == [(0, 3), (1, 3), (2, 1)])
    found = ViewReader(runner.tables).rows("lag", {"topic": ["marked"]})
    assert {row["log_end_offset"] for row in found} == {4}
    lags = {(row["group_id"], row["partition"]): row["lag"] for row in found}
    assert lags == {
        (group, number): 2 if group == "early" and number < 2 else 0 for group in offsets for number in range(3)
    }


def test_the_transaction_that_blocks_a_log_is_known(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    create(kafka, "held", [[1]])
    commit(kafka, "held", 0)
    started = datetime.now(UTC)
    with runner.running(sample_interval=0.5):
        producer = produce(kafka, "held", 0, 3, **{"transactional.id": "ledger-writer-7"})
        columns = ("open_transaction", "open_transaction_since")
        runner.await_(lambda: sampled(runner, "held", "open_transaction") == [("ledger-writer-7",)])
        ((_, since),) = sampled(runner, "held", *columns)
        assert started <= since <= datetime.now(UTC)
        producer.commit_transaction(SECONDS)
        runner.await_(lambda: sampled(runner, "held", *columns) == [(None, None)])


def test_record_times_give_the_first_record_since_a_time(kafka: EmbeddedKafka) -> None:
    create(kafka, "timed", [[1], [2]])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_server, "compression.type": "lz4", "linger.ms": 50})
    for milliseconds in (1000, 3000, 2000, 5000, 4000):
        producer.produce("timed", b"value", partition=0, timestamp=milliseconds)
    producer.flush(SECONDS)
    cluster, (full, empty) = (
        LogEnds(kafka.bootstrap_server),
        (TopicPartitionKey("timed", 0), TopicPartitionKey("timed", 1)),
    )
    cases = {1: RecordTimes(0, 1000, 5000), 2000: RecordTimes(1, 3000, 5000), 4000: RecordTimes(3, 5000, 5000)}
    for since, expected in cases.items():
        assert cluster.record_times({full: since}) == {full: expected}
    nothing = RecordTimes(-1, -1, -1)
    assert cluster.record_times({full: 5001, empty: 1}) == {full: RecordTimes(-1, -1, 5000), empty: nothing}
    assert cluster.record_times({TopicPartitionKey("not there", 0): 1}) == {}


@pytest.mark.long
def test_a_burst_is_placed_at_the_times_of_its_records(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    create(kafka, "bursts", [[1]])
    commit(kafka, "bursts", 0)
    written: list[float] = []
    with runner.running(sample_interval=2):
        for count in range(1, 5):
            runner.await_(lambda: sampled(runner, "bursts", "high_watermark") == [(len(written),)])
            now = datetime.now(UTC)  # a sample that finds nothing new
            runner.await_(lambda: sampled(runner, "bursts", "sampled_at")[0][0] > now)  # noqa: B023 - awaited within
            written.append(time.time())
            produce(kafka, "bursts", 0, 1)
            assert len(written) == count
        runner.await_(lambda: sampled(runner, "bursts", "high_watermark") == [(4,)])
    rows = recorded(runner, "bursts", "high_watermark", "sampled_at", "previous_sampled_at")
    ends = {high: (since.timestamp(), held_until.timestamp()) for high, since, held_until in rows if high}
    samples = [(at, *ends[high]) for high, at in enumerate(written, 1)]
    exact = [since for at, since, held_until in samples if since == held_until and abs(since - at) < 1]
    assert len(exact) >= 3, ends  # one may have been written during a query for end offsets


def test_constant_writes_are_not_taken_for_blocking(kafka: EmbeddedKafka) -> None:
    """Records also arrive between the queries for high watermark and last stable offset."""
    create(kafka, "streaming", [[1]])
    cluster, ended = LogEnds(kafka.bootstrap_server), threading.Event()
    found: list[LogEnd | NoEnd] = []
    partition_ends: list[PartitionEnds] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap_server, "linger.ms": 0})

    def stream() -> None:
        while not ended.is_set():
            producer.produce("streaming", b"value")
            producer.poll(0.001)

    streaming = threading.Thread(target=stream)
    streaming.start()
    try:
        for _ in range(100):
            found += cluster.ends({"streaming": None}, {}).values()
            partition_ends += cluster.partition_ends([0], "streaming").values()
    finally:
        ended.set()
        streaming.join()
        producer.flush(SECONDS)
    ends = [each for each in found if isinstance(each, LogEnd)]
    assert len(ends) == 100
    assert ends[-1].high_watermark > ends[0].high_watermark
    assert [each for each in ends if each.last_stable_offset != each.high_watermark] == []
    assert [each for each in partition_ends if each.last_stable_offset != each.high_watermark] == []


def test_restart_continues_the_samples_of_the_previous_job(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    create(kafka, "filed", [[1]])
    commit(kafka, "filed", 0)
    with runner.running(sample_interval=0.5):
        produce(kafka, "filed", 0, 1)
        runner.await_(lambda: sampled(runner, "filed", "high_watermark") == [(1,)])
        # A row exists at once, because the last minute is queried most.
        assert recorded(runner, "filed", "high_watermark")[-1] == (1,)
        produce(kafka, "filed", 0, 1)
        runner.await_(lambda: sampled(runner, "filed", "high_watermark") == [(2,)])
        # Sample again: if a sample saw a record newer than its own start, times cannot place the next one.
        produced = datetime.now(UTC)
        runner.await_(lambda: sampled(runner, "filed", "sampled_at")[0][0] > produced)
    # The last stable offset is queried later, so a row of its own may show its move.
    assert list(dict.fromkeys(row[0] for row in recorded(runner, "filed", "high_watermark")))[-2:] == [1, 2]

    (held_until,) = sampled(runner, "filed", "sampled_at")[0]
    written = time.time()
    produce(kafka, "filed", 0, 1)
    runner.run_once()
    high, until = recorded(runner, "filed", "high_watermark", "previous_sampled_at")[-1]
    assert high == 3
    assert held_until < until
    assert abs(until.timestamp() - written) < 1  # exact although no job ran: the record has the time


def test_a_deleted_topic_and_its_successor_of_the_same_name_are_told_apart(
    runner: JobRunner, kafka: EmbeddedKafka
) -> None:
    create(kafka, "again", [[1]])
    produce(kafka, "again", 0, 4)
    commit(kafka, "again", 0)
    admin = admin_client(kafka.bootstrap_server)
    with runner.running(sample_interval=0.5):
        runner.await_(lambda: sampled(runner, "again") == [(0, 0, 4, 4, None)])
        admin.delete_topics(["again"])["again"].result(SECONDS)
        runner.await_(lambda: sampled(runner, "again") == [])
        await_(lambda: "again" not in admin.list_topics(timeout=SECONDS).topics)
        create(kafka, "again", [[1]])
        commit(kafka, "again", 0)
        runner.await_(lambda: sampled(runner, "again") == [(0, 0, 0, 0, None)])
    ends = recorded(runner, "again", "high_watermark", "topic_id", "previous_sampled_at")
    assert [row[0] for row in ends] == [4, 0]
    assert ends[0][1] != ends[1][1]
    assert ends[1][2] is None


def test_an_offset_without_its_topic_or_partition_is_an_orphan(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    """Brokers accept no such commit, but keep one if its topic is deleted while the coordinator is away."""
    create(kafka, "there", [[1]])
    group, records = "orphaned", []
    for topic, number in (("never-there", 0), ("there", 7)):
        key = {"type": 1, "data": {"group": group, "topic": topic, "partition": number}}
        value = {"offset": 5, "metadata": "", "commitTimestamp": 1_767_225_600_000, "expireTimestamp": -1}
        records.append((partition_for(group, 50), *encode_record(key, {"version": 1, "data": value})))
    garbage.produce(kafka.bootstrap_server, iter(records))
    runner.run_once()
    for topic, number in (("never-there", 0), ("there", 7)):
        ((_, *ends, error),) = [row for row in sampled(runner, topic) if row[0] == number]
        assert (ends, error) == ([None, None, None], "UNKNOWN_TOPIC_OR_PARTITION")
    orphans = ViewReader(runner.tables).rows("orphan_offsets", {"group_id": [group]})
    assert {(row["topic"], row["partition"]): row["reason"] for row in orphans} == {
        ("never-there", 0): "the topic is unknown to the cluster",
        ("there", 7): "the topic has fewer partitions",
    }


@pytest.mark.long
def test_a_partition_without_leader_is_reported(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    create(kafka, "led", [[1], [LOST]])
    commit(kafka, "led", 0, 1)
    produce(kafka, "led", 1, 2)
    with runner.running(sample_interval=0.5):
        runner.await_(lambda: sampled(runner, "led") == [(0, 0, 0, 0, None), (1, 0, 2, 2, None)])
        kafka.stop_broker(LOST, kill=True)
        lost = [(0, 0, 0, 0, None), (1, 0, 2, 2, "LEADER_NOT_AVAILABLE")]
        runner.await_(lambda: sampled(runner, "led") == lost)
        produce(kafka, "led", 0, 1)
        runner.await_(lambda: sampled(runner, "led", "high_watermark") == [(1,), (2,)])
        kafka.start_broker(LOST)
        runner.await_(lambda: [row[-1] for row in sampled(runner, "led")] == [None, None])


def test_facts_about_the_cluster_are_recorded(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    runner.run_once()
    columns = ("cluster_id", "group_coordinator", "offsets_retention_ms", "offsets_retention_check_interval_ms")
    expected = (Cluster(kafka.bootstrap_server).cluster_id(), "new", 7 * 86_400_000, 600_000)
    assert runner.rows("cluster", *columns) == [expected]


def test_no_end_offsets_are_sampled_when_switched_off(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    runner.job(once=True, sample_interval=0.0).run()
    assert [runner.count(name) for name in ("topic_partitions", "end_offsets", "cluster")] == [0, 0, 1]
