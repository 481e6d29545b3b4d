"""Read all committed records of offsets partitions, with a consumer that joins no group and commits nothing."""

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
_MAX_MESSAGES = 10_000


@dataclass(frozen=True)
class LogRecord:
    """A record of the log. `timestamp_ms` is in milliseconds since 1970."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def read_log(
    bootstrap_server: str, properties: Mapping[str, str], partitions: Collection[int], timeout: float = TIMEOUT
) -> Iterator[list[LogRecord]]:
    """Yield all committed records of offsets partitions, from start to end, in order for each partition.

    Raises UnreachableError if no record arrives for `timeout` seconds.
    """
    with _log_consumer(bootstrap_server, properties) as consumer:
        consumer.assign([TopicPartition(OFFSETS_TOPIC, partition, OFFSET_BEGINNING) for partition in partitions])
        remaining, deadline = set(partitions), time.monotonic() + timeout
        while remaining:
            if time.monotonic() > deadline:
                raise UnreachableError(
                    f"{bootstrap_server} returns no records of the offsets partitions {sorted(remaining)}"
                )
            messages = [each for each in consumer.consume(_MAX_MESSAGES, _POLL_SECONDS) if _is_record_or_end(each)]
            if any(each.partition() in remaining for each in messages):
                deadline = time.monotonic() + timeout
            remaining -= {each.partition() for each in messages if each.error() is not None}
            yield [
                LogRecord(each.partition(), each.offset(), each.timestamp()[1], each.key(), each.value())
                for each in messages
                if each.error() is None
            ]


@contextmanager
def _log_consumer(bootstrap_server: str, properties: Mapping[str, str]) -> Iterator[Consumer]:
    """Yield a consumer that also reports the end of each partition."""
    config = {
        "client.id": "offsetstream",
        **librdkafka_config(properties, bootstrap_server),
        "bootstrap.servers": bootstrap_server,
        "group.id": "offsetstream",  # never joined; has the prefix of Spark's groups, so it needs no other right
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


def _is_record_or_end(message: Message) -> bool:
    """Return whether the message is a record or the end of a partition, and not another error."""
    return message.error() is None or message.error().code() == KafkaError._PARTITION_EOF
