"""Single records of the topic, by their place: read by a consumer that joins no group and commits nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import OFFSET_INVALID, KafkaError, Message, TopicPartition

from offsetstream.cluster.connection import TIMEOUT
from offsetstream.cluster.consumers import log_consumer
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.errors import UnreachableError

_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class LogRecord:
    """A record as the log has it; ``timestamp_ms`` in milliseconds since 1970."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def records_at(
    bootstrap_server: str, properties: Mapping[str, str], places: Mapping[int, int], timeout: float = TIMEOUT
) -> dict[int, LogRecord | None]:
    """Return the record at an offset of each offsets partition, None where there is none, as after compaction.

    The offsets must lie within the log. Raises UnreachableError if a partition gives nothing for ``timeout`` seconds.
    """
    found: dict[int, LogRecord | None] = {}
    with log_consumer(bootstrap_server, properties) as consumer:
        consumer.assign([TopicPartition(OFFSETS_TOPIC, partition, offset) for partition, offset in places.items()])
        deadline = time.monotonic() + timeout
        while len(found) < len(places):
            if time.monotonic() > deadline:
                silent = sorted(set(places) - set(found))
                raise UnreachableError(f"{bootstrap_server} gives no records of the offsets partitions {silent}")
            message = consumer.poll(_POLL_SECONDS)
            partition = None if message is None else message.partition()
            if partition is None or partition in found or not _tells(message):
                continue
            found[partition] = _record(message) if message.offset() == places[partition] else None
            consumer.incremental_unassign([TopicPartition(OFFSETS_TOPIC, partition, OFFSET_INVALID)])
    return found


def _tells(message: Message) -> bool:
    """Tell whether the message says what is at the place: a record, or the end of the log."""
    return message.error() is None or message.error().code() == KafkaError._PARTITION_EOF


def _record(message: Message) -> LogRecord | None:
    if message.error() is not None:
        return None
    return LogRecord(message.timestamp()[1], message.key(), message.value())
