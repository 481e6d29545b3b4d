"""The raw reader returns what Kafka's consumer returns, and gives up a partition that it cannot read to its end."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from offsetstream.cluster import connection
from offsetstream.cluster.client import Cluster
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.demo.topics import commit_in_transaction, create_topics
from offsetstream.embedded.clients import QUIET, admin_client
from offsetstream.embedded.jvm import DEFAULT_VERSION, kafka_command
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.ports import free_ports
from offsetstream.errors import ClusterError
from offsetstream.spark.source import KafkaSource
from offsetstream.stream.apply import raw_reader
from offsetstream.stream.apply.raw_reader import RAW_SCHEMA, RawReader, UnreadableError
from offsetstream.stream.monitor.broker_channel import Leaders, fetched
from testkit.segments import message, write_segment
from testkit.waiting import SECONDS, await_
from tests.kafka.jobs import JobRunner
from tests.kafka.partition_seven import GROUPS, all_at, commit, commits, set_topic_config
from tests.kafka.quick_compaction import offsets_in_log, quickly_compacting_kafka

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
EACH = 100  # records of each compression


@contextmanager
def open_transaction(server: str, group: str) -> Iterator[None]:
    """Keep a transaction open that has an offset of the group."""
    config = {"bootstrap.servers": server, "transactional.id": "open", "transaction.timeout.ms": 600_000}
    producer = Producer(config, logger=QUIET)
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    metadata = Consumer({"bootstrap.servers": server, "group.id": group}, logger=QUIET).consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition("orders", 0, 3)], metadata)
    yield
    producer.abort_transaction(SECONDS)


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(properties={"offsets.topic.segment.bytes": str(1 << 30)}) as kafka:
        create_topics(admin_client(kafka.bootstrap_server))
        commit(kafka, 0)
        yield kafka


@pytest.fixture(scope="module")
def log(kafka: EmbeddedKafka, spark: SparkSession) -> Log:
    """A broker whose partition 7 has all kinds of batches, and some other partitions a few records."""
    for compression in COMPRESSIONS:
        produce(kafka, compression, range(EACH))
    places = [TopicPartition("orders", number, 1) for number in range(4)]
    for abort in (False, True, True, False, True):
        commit_in_transaction(kafka.bootstrap_server, GROUPS[0], places, abort=abort)
        commit(kafka, 1)
        commit_in_transaction(kafka.bootstrap_server, GROUPS[1], places, abort=not abort)
    return Log(kafka, spark)


def produce(kafka: EmbeddedKafka, compression: str, numbers: range, size: int = 0) -> None:
    """Write records that a consumer returns as they are; some are tombstones or have headers."""
    settings = {"bootstrap.servers": kafka.bootstrap_server, "compression.type": compression, "linger.ms": 50}
    producer = Producer(settings | {"client.id": "__admin_client", "message.max.bytes": 20 << 20})
    for number in numbers:
        value = None if number % 10 == 3 else f"{compression} {number}".encode() + Random(number).randbytes(size)
        headers = [("trace", b"1")] if number % 25 == 7 else []
        producer.produce(
            OFFSETS_TOPIC,
            value,
            f"key {number}".encode(),
            7 if number % 4 else number % 50,
            timestamp=number,
            headers=headers,
        )
    assert producer.flush(SECONDS) == 0


class Log:
    """What the topic has, as the raw reader and as Spark's source read it."""

    def __init__(self, kafka: EmbeddedKafka, spark: SparkSession) -> None:
        self.kafka = kafka
        self._spark = spark
        self._cluster = Cluster(kafka.bootstrap_server)
        self.ends = self._cluster.available_ends(range(50))
        self.epochs = {number: end.coordinator_epoch for number, end in self.ends.items()}
        self.reader = RawReader(Leaders(spark, self._cluster, {}))

    @property
    def stable(self) -> dict[int, int]:
        return {number: end.last_stable_offset for number, end in self.ends.items()}

    def by_reader(self, start: dict[int, int], end: dict[int, int], **more: int) -> pa.Table:
        epochs = {**self.epochs, **{int(name.removeprefix("epoch_")): epoch for name, epoch in more.items()}}
        return pa.Table.from_batches(self.reader.read(start, end, epochs), RAW_SCHEMA)

    def by_spark(self, start: dict[int, int], end: dict[int, int]) -> pa.Table:
        found = KafkaSource(self.kafka.bootstrap_server, {}).read(self._spark, start, end).toArrow()
        return found.cast(RAW_SCHEMA)


def by_partition(rows: pa.Table) -> dict[int, list[dict[str, object]]]:
    """Return the records by offsets partition, in the order in which they came."""
    found: dict[int, list[dict[str, object]]] = {}
    for row in rows.to_pylist():
        found.setdefault(row["offsets_partition"], []).append(row)
    return found


def test_the_reader_returns_what_a_consumer_returns(log: Log) -> None:
    start = dict.fromkeys(log.stable, 0)
    found = by_partition(log.by_reader(start, log.stable))
    assert found == by_partition(log.by_spark(start, log.stable))
    assert len(found) > 5
    assert len(found[7]) > 300


@pytest.mark.long
@pytest.mark.parametrize("answer_bytes", [1, 300, 5000])
def test_small_answers_starve_no_partition(log: Log, answer_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start = dict.fromkeys(log.stable, 0)
    expected = by_partition(log.by_spark(start, log.stable))
    monkeypatch.setattr(raw_reader, "_ANSWER_BYTES", answer_bytes)
    assert by_partition(log.by_reader(start, log.stable)) == expected


def test_any_range_is_cut_within_batches(log: Log) -> None:
    whole = by_partition(log.by_reader({7: 0}, {7: log.stable[7]}))[7]
    rng = Random(1)
    for _ in range(20):
        first, last = sorted(rng.sample(range(log.stable[7] + 1), 2))
        found = by_partition(log.by_reader({7: first}, {7: last})).get(7, [])
        assert found == [row for row in whole if first <= row["record_offset"] < last]  # type: ignore[operator]


def test_a_leader_of_another_epoch_is_not_read(log: Log) -> None:
    epoch = log.epochs[7]
    assert epoch is not None
    for other in (epoch + 1, epoch - 1 if epoch else epoch + 2):
        with pytest.raises(UnreadableError, match="7: its leader changed"):
            log.by_reader({6: 0, 7: 0}, {6: log.stable[6], 7: log.stable[7]}, epoch_7=other)


@pytest.mark.long
def test_what_the_log_does_not_have_is_refused(log: Log) -> None:
    with pytest.raises(UnreadableError, match="7: its log has no longer what is to be read"):
        log.by_reader({7: log.stable[7] + 100}, {7: log.stable[7] + 200})
    with pytest.raises(UnreadableError, match="60: it has no leader"):
        log.by_reader({7: 0, 60: 0}, {7: 5, 60: 1})


@pytest.mark.long
def test_an_end_that_does_not_come_is_given_up(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_reader, "PATIENCE", 1.0)
    end = log.stable[7]
    with pytest.raises(UnreadableError, match=f"7: its leader returns nothing from offset {end} on"):
        log.by_reader({6: 0, 7: 0}, {6: log.stable[6], 7: end + 1})


@pytest.mark.long
def test_a_caller_that_stops_early_leaves_no_thread(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_reader, "_ANSWER_BYTES", 1)
    start = dict.fromkeys(log.stable, 0)
    reading = log.reader.read(start, log.stable, log.epochs)
    next(reading)
    reading.close()
    assert not [thread for thread in threading.enumerate() if thread.name == raw_reader.THREAD]


@pytest.mark.long
def test_a_batch_of_megabytes_comes_in_one_answer(kafka: EmbeddedKafka, spark: SparkSession) -> None:
    set_topic_config(kafka, max_message_bytes=str(32 << 20))
    produce(kafka, "none", range(1, 3), size=9 << 20)
    log = Log(kafka, spark)
    end = {7: log.stable[7]}
    rows = by_partition(log.by_reader({7: 0}, end))[7]
    assert rows == by_partition(log.by_spark({7: 0}, end))[7]
    assert max(len(row["value"] or b"") for row in rows) > 9 << 20  # type: ignore[arg-type]


@pytest.mark.long
def test_a_load_ends_where_the_first_open_transaction_begins(kafka: EmbeddedKafka, spark: SparkSession) -> None:
    with open_transaction(kafka.bootstrap_server, GROUPS[2]):
        commit(kafka, 5)
        log = Log(kafka, spark)
        stable, end = {7: log.stable[7]}, log.ends[7].high_watermark
        assert stable[7] < end
        assert by_partition(log.by_reader({7: 0}, stable)) == by_partition(log.by_spark({7: 0}, stable))


@pytest.mark.long
def test_a_silent_broker_is_given_up(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_reader, "_ANSWER_BYTES", 1)
    reading = log.reader.read({7: 0}, log.stable, log.epochs)
    next(reading)
    (pid,) = log.kafka.pids.values()
    os.kill(pid, signal.SIGSTOP)
    try:
        monkeypatch.setattr(connection, "TIMEOUT", 1.0)
        with pytest.raises(UnreadableError, match=r"7: .* does not answer: no answer in time"):
            list(reading)
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.long
def test_what_cannot_be_read_raw_is_read_by_spark(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the broker were older than 2.3."""
    monkeypatch.setattr(raw_reader, "FETCH", (1, 99))
    runner = JobRunner(spark, kafka.bootstrap_server, tmp_path)
    with pytest.raises(ClusterError, match="Cannot read offsets partitions raw, as --load-by demands: "):
        runner.job(once=True, load_by="raw", max_silence=timedelta(0)).run()
    runner.job(once=True, load_by="auto").run()
    assert runner.said.getvalue().count(" WARN  Offsets partition 7 is read by Spark, not raw: ") == 1
    assert ", read by Spark)" in runner.said.getvalue()
    assert runner.count("committed_offsets") > 0


@pytest.mark.long
def test_a_topic_that_is_recreated_while_it_is_read_is_read_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log has grown past what was read, and its leader epochs start again: only the topic's id shows it."""
    read = RawReader.read

    def recreating(reader: RawReader, *places: Any) -> Iterator[pa.RecordBatch]:
        yield from read(reader, *places)
        if len(log_ids := runner.values("offsets_partitions", "log_id")) == 1 and log_ids == {0}:
            admin.delete_topics([OFFSETS_TOPIC])[OFFSETS_TOPIC].result(SECONDS)
            kafka.restart()  # otherwise the coordinator continues with its state in memory
            for offset in range(3):
                commit(kafka, 100 + offset)

    with EmbeddedKafka(port=free_ports(1)[0]) as kafka:
        admin = admin_client(kafka.bootstrap_server)
        create_topics(admin)
        commit(kafka, 0)
        runner = JobRunner(spark, kafka.bootstrap_server, tmp_path)
        monkeypatch.setattr(RawReader, "read", recreating)
        runner.job(once=True, load_by="raw").run()
        assert "Restarting: the topic was recreated while it was read" in runner.said.getvalue()
        assert runner.values("committed_offsets", "committed_offset") == {102}
        assert runner.values("offset_commits", "log_id") == {1}


@pytest.mark.long
def test_messages_of_formats_0_and_1_are_read(spark: SparkSession) -> None:
    """They are in the log since the cluster was Kafka 0.10: no broker of today writes them."""
    with EmbeddedKafka() as kafka:
        create_topics(admin_client(kafka.bootstrap_server))
        commit(kafka, 0)
        kafka.stop_broker(1)
        (folder,) = kafka.folder.rglob("__consumer_offsets-7")
        old = [message(number, number % 2, b"key %d" % number, b"value" if number % 3 else None) for number in range(9)]
        inner = message(0, 1, b"key 9", b"a") + message(1, 1, b"key 10", None)
        old.append(message(10, 1, None, gzip.compress(inner), attributes=1))
        for file in folder.iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        write_segment(folder, 0, *old)
        kafka.start_broker(1)
        commit(kafka, 1)
        log = Log(kafka, spark)
        stable = {7: log.stable[7]}
        rows = by_partition(log.by_reader({7: 0}, stable))
        assert rows == by_partition(log.by_spark({7: 0}, stable))
        assert [row["key"] for row in rows[7]][:11] == [b"key %d" % number for number in range(11)]


def set_quota(kafka: EmbeddedKafka, *change: str) -> None:
    """Change the default quota of all clients by Kafka's own tool."""
    where = ("--bootstrap-server", kafka.bootstrap_server, "--entity-type", "clients", "--entity-default")
    words = [*where, "--alter", *change]
    command = kafka_command("kafka_2.13", DEFAULT_VERSION, "kafka.admin.ConfigCommand", words, ())
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.long
def test_a_broker_that_throttles_is_read_to_the_end(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    throttled = list[int]()

    def noted(answer: bytes) -> Any:
        milliseconds, parts = fetched(answer)
        throttled.append(milliseconds)
        return milliseconds, parts

    monkeypatch.setattr(raw_reader, "_ANSWER_BYTES", 5000)
    monkeypatch.setattr(raw_reader, "fetched", noted)
    start = dict.fromkeys(log.stable, 0)
    expected = by_partition(log.by_spark(start, log.stable))
    set_quota(log.kafka, "--add-config", "consumer_byte_rate=2000")
    try:
        assert by_partition(log.by_reader(start, log.stable)) == expected
    finally:
        set_quota(log.kafka, "--delete-config", "consumer_byte_rate")
    assert max(throttled) > 0


@pytest.mark.long
def test_a_log_that_is_compacted_while_it_is_read_has_the_last_of_each_key(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quickly_compacting_kafka() as kafka:
        set_topic_config(kafka, min_compaction_lag_ms="600000")
        for offset in range(1, 30):
            commit(kafka, offset)
        log = Log(kafka, spark)
        stable = {7: log.stable[7]}
        before = by_partition(log.by_spark({7: 0}, stable))[7]
        monkeypatch.setattr(raw_reader, "_ANSWER_BYTES", 1)
        reading = log.reader.read({7: 0}, stable, log.epochs)
        rows = next(reading).to_pylist()
        some = len(offsets_in_log(kafka))
        set_topic_config(kafka, min_compaction_lag_ms="0")

        def is_compacted() -> bool:
            commit(kafka, 100)
            return len(offsets_in_log(kafka)) < some // 2

        await_(is_compacted, lambda: "nothing was compacted")
        rows += pa.Table.from_batches(reading).to_pylist()
        offsets = [row["record_offset"] for row in rows]
        assert offsets == sorted(set(offsets))
        assert len(rows) < len(before)
        # The last record of a key may have gone because a later one, behind the end, replaced it.
        last, found = ({row["key"]: row["value"] for row in each} for each in (before, rows))
        assert found.keys() <= last.keys()
        assert [row for row in rows if row not in before] == []


@pytest.mark.long
def test_a_leader_that_dies_while_it_is_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three brokers, one is killed after the first records: Spark reads its partitions from their new leaders."""
    monkeypatch.setattr(connection, "TIMEOUT", 5.0)
    monkeypatch.setattr(raw_reader, "_ANSWER_BYTES", 1000)
    read, killed = RawReader.read, list[int]()
    properties = {"offsets.topic.replication.factor": "3", "min.insync.replicas": "1"}
    with EmbeddedKafka(brokers=3, properties=properties) as three:

        def killing(reader: RawReader, *places: Any) -> Iterator[pa.RecordBatch]:
            for batch in read(reader, *places):
                yield batch
                if not killed:
                    topic = admin_client(three.bootstrap_server).list_topics(OFFSETS_TOPIC).topics[OFFSETS_TOPIC]
                    killed.append(topic.partitions[7].leader)
                    three.stop_broker(killed[0], kill=True)

        monkeypatch.setattr(RawReader, "read", killing)
        create_topics(admin_client(three.bootstrap_server))
        for offset in range(20):
            commit(three, offset)
        runner = JobRunner(spark, three.bootstrap_server, tmp_path)
        runner.job(once=True).run()
        assert commits(runner) == all_at(19)
        assert runner.count("offset_commits") == 20 * len(all_at(0))
        assert " WARN  Offsets partition 7 is read by Spark, not raw: " in runner.said.getvalue()


@pytest.mark.long
def test_a_damaged_batch_is_named(kafka: EmbeddedKafka, spark: SparkSession) -> None:
    log = Log(kafka, spark)
    (path,) = (folder / f"{0:020}.log" for folder in kafka.folder.rglob("__consumer_offsets-7"))
    with path.open("r+b") as file:
        file.seek(path.read_bytes().index(b"none 50"))
        file.write(b"N")
    with pytest.raises(UnreadableError, match=r"7: the batch at offset \d+ is damaged \(CRC-32C\)"):
        log.by_reader({7: 0}, {7: log.stable[7]})
