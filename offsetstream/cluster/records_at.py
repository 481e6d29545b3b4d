"""The records that a consumer would read from given offsets on: one that joins no group and commits nothing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, TypeAlias

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    Message,
    TopicPartition,
)

from offsetstream.cluster.committed import Place
from offsetstream.cluster.connection import QUIET
from offsetstream.cluster.consumers import close
from offsetstream.cluster.error_names import kafka_name
from offsetstream.cluster.properties import librdkafka_config

IsolationLevel: TypeAlias = Literal["read_committed", "read_uncommitted"]
OUT_OF_RANGE, SILENT = "OFFSET_OUT_OF_RANGE", "REQUEST_TIMED_OUT"
_POLL_SECONDS = 0.1
_PARTITIONS_AT_ONCE, _MESSAGES_AT_ONCE = 500, 1000
_MOST_ERRORS = 20  # heard while reading, after which nothing more is waited for
_CONFIG = {
    # One small fetch of each partition will do, whose first batch comes whole in any case.
    "queued.min.messages": 1,
    "fetch.message.max.bytes": 65_536,
    "fetch.max.bytes": 8_388_608,
    "receive.message.max.bytes": 100_000_000,
    "fetch.wait.max.ms": 100,
    # Else a leader that falls silent is waited for a minute, and a new one not looked for.
    "socket.timeout.ms": 10_000,
    "topic.metadata.refresh.interval.ms": 3000,
}


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a consumer gets it; `timestamp_ms` since 1970, None where it has none."""

    offset: int
    timestamp_ms: int | None
    is_log_append_time: bool
    leader_epoch: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def timestamp_type(self) -> str:
        """Kafka's name of who has set the timestamp: the producer, or the broker."""
        return "LogAppendTime" if self.is_log_append_time else "CreateTime"


@dataclass
class Found:
    """What was read of a partition: the records, whether its end was reached, or by Kafka's name why there are no more.

    `errors` counts those that were heard on the way there.
    """

    records: list[Record] = field(default_factory=list)
    is_at_end: bool = False
    error: str | None = None
    errors: int = 0


def read_at(
    bootstrap_server: str,
    properties: Mapping[str, str],
    starts: Mapping[Place, int],
    at_most: int,
    *,
    isolation_level: IsolationLevel = "read_committed",
    timeout: float,
) -> dict[Place, Found]:
    """Return up to `at_most` records of each partition from an offset on, within `timeout` seconds for all.

    Control records are left out, with `read_committed` also records of aborted transactions, and what an open one holds
    back is not reached. An offset outside the log is OFFSET_OUT_OF_RANGE and moves nowhere. A leader that moves is
    followed; a partition without an answer in time has the error REQUEST_TIMED_OUT.
    """
    deadline = time.monotonic() + timeout
    found = {place: Found() for place in starts}
    with _consumer(bootstrap_server, properties, isolation_level) as (consumer, heard):
        left = iter(starts.items())
        while some := dict(islice(left, _PARTITIONS_AT_ONCE)):
            consumer.assign([TopicPartition(*place, offset) for place, offset in some.items()])
            _read(consumer, some, {place: found[place] for place in some}, at_most, deadline, heard)
    return found


def _read(
    consumer: Consumer,
    starts: Mapping[Place, int],
    found: Mapping[Place, Found],
    at_most: int,
    deadline: float,
    heard: deque[KafkaError],
) -> None:
    left = set(starts)
    while left:
        late = time.monotonic() > deadline or len(heard) > _MOST_ERRORS
        for message in () if late else consumer.consume(_MESSAGES_AT_ONCE, _POLL_SECONDS):
            place = (message.topic(), message.partition())
            if place in left and _take(message, found[place], starts[place], at_most):
                left.discard(place)
                consumer.pause([TopicPartition(*place)])
        if late:
            break
    for place in left:
        found[place].error = found[place].error or SILENT
    for each in found.values():
        each.errors += len(heard)


def _take(message: Message, found: Found, start: int, at_most: int) -> bool:
    """Take in what came of a partition; returns whether that was all."""
    error = message.error()
    if error is None:
        if message.offset() >= start:  # a batch may begin before
            found.records.append(_record(message))
        return len(found.records) >= at_most
    if error.code() == KafkaError._PARTITION_EOF:
        found.is_at_end = True
        return True
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        found.error = OUT_OF_RANGE
        return True
    found.errors += 1
    if error.retriable() and found.errors <= _MOST_ERRORS:
        return False
    found.error = kafka_name(error)
    return True


def _record(message: Message) -> Record:
    kind, timestamp = message.timestamp()
    return Record(
        message.offset(),
        None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        kind == TIMESTAMP_LOG_APPEND_TIME,
        message.leader_epoch(),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )


@contextmanager
def _consumer(
    bootstrap_server: str, properties: Mapping[str, str], isolation_level: IsolationLevel
) -> Iterator[tuple[Consumer, deque[KafkaError]]]:
    heard: deque[KafkaError] = deque()
    config = {
        "client.id": "offsetstream",
        **librdkafka_config(properties, bootstrap_server),
        **_CONFIG,
        "bootstrap.servers": bootstrap_server,
        "group.id": "offsetstream",  # never joined
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": isolation_level,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "error_cb": heard.append,
    }
    consumer = Consumer(config, logger=QUIET)
    try:
        yield consumer, heard
    finally:
        close(consumer)
