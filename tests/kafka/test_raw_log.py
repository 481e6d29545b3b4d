"""Offsets that compaction removed are told apart from markers and aborted records, by the broker and by its files."""

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from offsetstream.cluster.client import Cluster
from offsetstream.codec.log_segments import find_partitions, read_segments
from offsetstream.demo.topics import commit_in_transaction, create_topics
from offsetstream.embedded.artifacts import resolve
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.jvm import DEFAULT_VERSION, java_gateway
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.errors import SegmentError, UnreachableError, UsageError
from offsetstream.stream.monitor import gaps
from offsetstream.stream.monitor.broker_channel import BrokerTooOldError, Leaders, broker_channel
from offsetstream.stream.monitor.gaps import LostOffsets, Ranges, lost_offsets
from testkit.waiting import await_
from tests.kafka.partition_seven import GROUPS, commit, set_topic_config


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    """A broker that cleans often once the topic has short segments."""
    with EmbeddedKafka(properties={"log.cleaner.backoff.ms": "100"}) as kafka:
        create_topics(admin_client(kafka.bootstrap_server))
        yield kafka


@pytest.fixture(scope="module")
def log(spark: SparkSession, kafka: EmbeddedKafka) -> LostOffsets:
    cluster = Cluster(kafka.bootstrap_server)

    leaders = Leaders(spark, cluster, {})

    def lost(ranges: Ranges) -> dict[int, int]:
        return lost_offsets(leaders, {7: cluster.partition_ends([7])[7].coordinator_epoch}, ranges)

    return lost


def end_offset(kafka: EmbeddedKafka) -> int:
    return Cluster(kafka.bootstrap_server).partition_ends([7])[7].last_stable_offset


def offsets_in_files(kafka: EmbeddedKafka) -> set[int]:
    (folder,) = kafka.folder.rglob("__consumer_offsets-7")
    (partition,) = find_partitions([folder])
    found: set[int] = set()
    for batch in read_segments(partition.segments, lambda _: None):
        in_batch = range(batch.base_offset, batch.next_offset)
        found.update(in_batch if batch.is_control else (record.offset for record in batch.records))
    return found


def write_all_kinds(kafka: EmbeddedKafka) -> None:
    places = [TopicPartition("orders", number, 1) for number in range(4)]
    for abort in (False, True, True):
        commit_in_transaction(kafka.bootstrap_server, GROUPS[0], places, abort=abort)
        commit(kafka, 1)


def test_markers_and_aborted_records_are_not_lost(log: LostOffsets, kafka: EmbeddedKafka) -> None:
    write_all_kinds(kafka)
    end = end_offset(kafka)
    assert end > 3 * (4 + 1)  # the records and the marker of each transaction
    assert [log({7: (start, end)}) for start in range(end + 1)] == [{7: 0}] * (end + 1)
    assert log({7: (0, end), 8: (0, 0)}) == {7: 0, 8: 0}


def test_a_leader_of_another_epoch_gives_no_answer(spark: SparkSession, kafka: EmbeddedKafka) -> None:
    cluster = Cluster(kafka.bootstrap_server)
    epoch = cluster.partition_ends([7])[7].coordinator_epoch
    assert epoch is not None
    leaders = Leaders(spark, cluster, {})
    assert lost_offsets(leaders, {7: epoch + 1}, {7: (0, end_offset(kafka))}) == {}


def test_offsets_that_compaction_removed_are_lost(
    log: LostOffsets, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_topic_config(kafka, segment_ms="100", min_cleanable_dirty_ratio="0.01")

    def is_compacted() -> bool:
        """Commit until segments are closed and cleaned. Files may change during the read."""
        write_all_kinds(kafka)
        end = end_offset(kafka)
        try:
            present = offsets_in_files(kafka)
        except (SegmentError, UsageError):
            return False
        lost = {start: len(set(range(start, end)) - present) for start in range(0, end, 7)}
        lost_by_broker = {start: log({7: (start, end)}).get(7) for start in lost}
        return lost == lost_by_broker and lost[0] > 0

    await_(is_compacted)
    end = end_offset(kafka)
    assert log({7: (0, end), 8: (0, 1), 999: (0, 5)}).keys() == {7}
    monkeypatch.setattr(gaps, "_FETCH_BYTES", 1)  # one batch at a time
    assert log({7: (0, end)})[7] > 0
    monkeypatch.setattr(gaps, "MOST_BYTES", 1000)
    assert log({7: (0, end)}) == {}


NEWER_CLIENTS = (f"org.apache.kafka:kafka-clients:{DEFAULT_VERSION}", "org.slf4j:slf4j-nop:1.7.36")


def test_kafka_clients_of_a_newer_spark_have_the_same_classes(kafka: EmbeddedKafka) -> None:
    host, port = kafka.bootstrap_server.split(":")
    with java_gateway(resolve(NEWER_CLIENTS)) as java:
        with broker_channel(java.jvm, (host, int(port)), {}) as channel:
            assert channel.ask(18, 0, b"")[:2] == bytes(2)
            with pytest.raises(BrokerTooOldError):
                channel.ask(18, 99, b"")
            kafka.stop_broker(1)
            with pytest.raises(UnreachableError):
                channel.ask(18, 0, b"")
        with pytest.raises(UnreachableError), broker_channel(java.jvm, (host, int(port)), {}):
            pass
