"""The committed records of whole offsets partitions: by a consumer that joins no group and commits nothing."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from offsetstream.cluster.connection import QUIET, TIMEOUT
from offsetstream.cluster.consumers import close
from offsetstream.cluster.properties import librdkafka_config
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.errors import UnreachableError

_POLL_SECONDS = 0.2
_AT_ONCE = 10_000


@dataclass(frozen=True)
class LogRecord:
    """A record as the log has it; `timestamp_ms` in milliseconds since 1970."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def read_log(
    bootstrap_server: str, properties: Mapping[str, str], partitions: Collection[int], timeout: float = TIMEOUT
) -> Iterator[list[LogRecord]]:
    """Yield all committed records of offsets partitions, from start to end; those of a partition come in order.

    Raises UnreachableError if nothing comes for `timeout` seconds before the ends.
    """
    with _log_consumer(bootstrap_server, properties) as consumer:
        consumer.assign([TopicPartition(OFFSETS_TOPIC, partition, OFFSET_BEGINNING) for partition in partitions])
        left, deadline = set(partitions), time.monotonic() + timeout
        while left:
            if time.monotonic() > deadline:
                raise UnreachableError(f"{bootstrap_server} gives no records of the offsets partitions {sorted(left)}")
            messages = [each for each in consumer.consume(_AT_ONCE, _POLL_SECONDS) if _tells(each)]
            if any(each.partition() in left for each in messages):
                deadline = time.monotonic() + timeout
            left -= {each.partition() for each in messages if each.error() is not None}
            yield [
                LogRecord(each.partition(), each.offset(), each.timestamp()[1], each.key(), each.value())
                for each in messages
                if each.error() is None
            ]


@contextmanager
def _log_consumer(bootstrap_server: str, properties: Mapping[str, str]) -> Iterator[Consumer]:
    """Give a consumer for reading a log, which says where that ends."""
    config = {
        "client.id": "offsetstream",
        **librdkafka_config(properties, bootstrap_server),
        "bootstrap.servers": bootstrap_server,
        "group.id": "offsetstream",  # never joined; its name begins as Spark's do, so it needs no right of its own
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    }
    consumer = Consumer(config, logger=QUIET)
    try:
        yield consumer
    finally:
        close(consumer)


def _tells(message: Message) -> bool:
    """Tell whether the message says what is in the log: a record, or where it ends."""
    return message.error() is None or message.error().code() == KafkaError._PARTITION_EOF
