"""A broker that compacts within a second, the records left in partition 7, and a group that is deleted from it."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, Message, TopicPartition

from offsetstream.cluster.records import close
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.topics import commit_plainly, create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.waiting import SECONDS, await_
from tests.kafka.partition_seven import commit

CLEANER = {
    "log.roll.ms": "200",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "500",
}
DOOMED = next(f"doomed-{number}" for number in range(400) if partition_for(f"doomed-{number}", 50) == 7)


@contextmanager
def quickly_compacting_kafka() -> Iterator[EmbeddedKafka]:
    """Run a broker with the demo's topics and one commit of each group of partition 7."""
    with EmbeddedKafka(properties=CLEANER) as kafka:
        create_topics(admin_client(kafka.bootstrap_server))
        commit(kafka, 0)
        yield kafka


def records_in_log(kafka: EmbeddedKafka) -> Iterator[Message]:
    """Yield the records that a consumer reads from partition 7."""
    settings = {"bootstrap.servers": kafka.bootstrap_server, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.assign([TopicPartition(OFFSETS_TOPIC, 7, 0)])
    while (message := consumer.poll(SECONDS)) is not None and message.error() is None:
        yield message
    close(consumer)


def offsets_in_log(kafka: EmbeddedKafka) -> list[int]:
    return [offset for message in records_in_log(kafka) if (offset := message.offset()) is not None]


def commit_doomed(kafka: EmbeddedKafka) -> None:
    commit_plainly(kafka.bootstrap_server, {DOOMED: [TopicPartition("orders", 0, 5)]})


def delete_doomed(kafka: EmbeddedKafka, offset: int) -> int:
    """Delete the group and commit for the others until compaction removed its records; return their last offset.

    The topic keeps tombstones for `delete.retention.ms`: the first compaction writes into them when they may go.
    """
    admin = admin_client(kafka.bootstrap_server)
    admin.delete_consumer_groups([DOOMED])[DOOMED].result(SECONDS)

    def is_gone() -> bool:
        nonlocal offset
        if not any(DOOMED.encode() in (message.key() or b"") for message in records_in_log(kafka)):
            return True
        offset += 1
        commit(kafka, offset)
        return False

    await_(is_gone, lambda: f"{DOOMED} is still in the log")
    return offset
