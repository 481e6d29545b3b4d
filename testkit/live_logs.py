"""Creates, writes and reads topics of a real cluster, with committed, aborted and open transactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import NewTopic

from offsetstream.cluster.log_ends import LogEnd, LogEnds, TopicPartitionKey
from offsetstream.embedded.clients import QUIET, admin_client
from testkit.waiting import SECONDS, await_

TEN_MINUTES = 600_000
Record = Mapping[str, Any]


def create_topic(
    server: str, topic: str, partitions: int | list[list[int]] = 1, config: Mapping[str, str] | None = None
) -> None:
    """Create a topic. `partitions`: their number, or a list with the replicas of each."""
    admin = admin_client(server)  # without a variable it would be collected before its answer arrives
    if isinstance(partitions, int):
        new = NewTopic(topic, partitions, config=dict(config or {}))
    else:
        new = NewTopic(topic, len(partitions), replica_assignment=partitions, config=dict(config or {}))
    admin.create_topics([new])[topic].result(SECONDS)


def write(
    server: str, topic: str, *records: Record, partition: int = 0, properties: Mapping[str, Any] | None = None
) -> None:
    """Write records, given as arguments of `Producer.produce`, and flush."""
    producer = Producer({"bootstrap.servers": server, **(properties or {})}, logger=QUIET)
    _produce(producer, topic, partition, records)


def numbered(count: int, first: int = 0) -> list[Record]:
    """Return `count` records with their numbers as keys and values."""
    return [{"key": f"key-{number}", "value": f"value-{number}"} for number in range(first, first + count)]


@contextmanager
def transaction(
    server: str, transactional_id: str, topic: str, *records: Record, partition: int = 0
) -> Iterator[Producer]:
    """Write the records in a transaction. It stays open until the caller ends it."""
    config = {"bootstrap.servers": server, "transactional.id": transactional_id, "transaction.timeout.ms": TEN_MINUTES}
    producer = Producer(config, logger=QUIET)
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    _produce(producer, topic, partition, records)
    yield producer


def await_end(server: str, *places: tuple[str, int]) -> None:
    """Wait until no open transaction blocks readers of the partitions.

    The commit call may return before its marker is in the log.
    """

    def is_blocked(topic: str, partition: int) -> bool:
        end = LogEnds(server).ends({topic: [partition]}, {})[TopicPartitionKey(topic, partition)]
        assert isinstance(end, LogEnd)
        return end.last_stable_offset < end.high_watermark

    await_(lambda: not any(is_blocked(*place) for place in places))


def joined(server: str, group: str, topic: str) -> Consumer:
    """Return a member of the group that owns the topic's partitions and commits nothing."""
    config = {
        "bootstrap.servers": server,
        "group.id": group,
        "enable.auto.commit": False,
        "max.poll.interval.ms": 3_600_000,  # tests need not poll it
    }
    consumer = Consumer(config, logger=QUIET)
    consumer.subscribe([topic])

    def has_partitions() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    await_(has_partitions, pause=0)
    return consumer


def _produce(producer: Producer, topic: str, partition: int, records: Sequence[Record]) -> None:
    refused: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            refused.append(error)

    for record in records:
        producer.produce(topic, partition=partition, on_delivery=delivered, **record)
    assert producer.flush(SECONDS) == 0
    assert not refused, refused
