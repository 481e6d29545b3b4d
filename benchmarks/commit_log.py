"""Fills __consumer_offsets with commits such as brokers of 4.1 and later write them, for measurements."""

import struct
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from offsetstream.coordinator.partitioning import partition_for

TOPIC = "__consumer_offsets"
_PARTITIONS_PER_GROUP = 100


def make_offsets_topic(bootstrap_server: str) -> None:
    """Make the broker create the topic, as any first commit does."""
    topic = NewTopic("clicks", 1, 1)
    admin = AdminClient({"bootstrap.servers": bootstrap_server})
    admin.create_topics([topic])[topic.topic].result(30)
    consumer = Consumer({"bootstrap.servers": bootstrap_server, "group.id": "first"})
    first_commit = retry(retry=retry_if_exception_type(KafkaException), stop=stop_after_delay(30), wait=wait_fixed(0.5))
    first_commit(consumer.commit)(offsets=[TopicPartition(topic.topic, 0, 0)], asynchronous=False)
    consumer.close()


def write_commits(bootstrap_server: str, records: int, cells: int, partitions: int = 50) -> None:
    """Write `records` commits over `cells` (group, topic, partition), in turn; brokers let only this client do so."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_server,
            "client.id": "__admin_client",
            "linger.ms": 50,
            "batch.num.messages": 50_000,
            "queue.buffering.max.messages": 500_000,
        }
    )
    keys = [_key(cell) for cell in range(cells)]
    homes = [partition_for(_group(cell), partitions) for cell in range(cells)]
    now = int(time.time() * 1000)
    for number in range(records):
        cell = number % cells
        while True:
            try:
                producer.produce(TOPIC, key=keys[cell], value=_value(number, now), partition=homes[cell])
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the broker did not take all records within two minutes")


def _group(cell: int) -> str:
    return f"bench-{cell // _PARTITIONS_PER_GROUP}"


def _key(cell: int) -> bytes:
    group, topic = _group(cell).encode(), b"clicks"
    partition = cell % _PARTITIONS_PER_GROUP
    return struct.pack(f">hh{len(group)}sh{len(topic)}si", 1, len(group), group, len(topic), topic, partition)


def _value(number: int, time_ms: int) -> bytes:
    return struct.pack(">hqiBqB", 4, number, 7, 1, time_ms + number, 0)  # no metadata, no tags
