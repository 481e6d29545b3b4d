"""Read records from given offsets on, with a consumer that joins no group and commits nothing."""

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
_MAX_PARTITIONS, _MAX_MESSAGES = 500, 1000
_MAX_ERRORS = 20  # after which it stops to wait
_CONFIG = {
    # One small fetch for each partition is enough. Its first batch is complete in any case.
    "queued.min.messages": 1,
    "fetch.message.max.bytes": 65_536,
    "fetch.max.bytes": 8_388_608,
    "receive.message.max.bytes": 100_000_000,
    "fetch.wait.max.ms": 100,
    # By default, librdkafka waits a minute for a silent leader and does not look for a new one.
    "socket.timeout.ms": 10_000,
    "topic.metadata.refresh.interval.ms": 3000,
}


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a consumer gets it. `timestamp_ms` is in milliseconds since 1970 (None: no timestamp)."""

    offset: int
    timestamp_ms: int | None
    is_log_append_time: bool
    leader_epoch: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def timestamp_type(self) -> str:
        """Kafka's name of the timestamp type, which tells whether the producer or the broker set it."""
        return "LogAppendTime" if self.is_log_append_time else "CreateTime"


@dataclass
class FetchedRecords:
    """The records of a partition, whether its end was reached, and Kafka's name of the error that stopped reading.

    `errors` counts all errors until then.
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
) -> dict[Place, FetchedRecords]:
    """Return up to `at_most` records of each partition, starting at an offset, within `timeout` seconds for all.

    Control records are skipped. With `read_committed`, so are records of aborted transactions, and reading stops at an
    open transaction. An offset outside the log gives the error OFFSET_OUT_OF_RANGE, without a reset. Reading continues
    at a new leader. A partition without an answer in time has the error REQUEST_TIMED_OUT.
    """
    deadline = time.monotonic() + timeout
    found = {place: FetchedRecords() for place in starts}
    with _consumer(bootstrap_server, properties, isolation_level) as (consumer, errors):
        remaining = iter(starts.items())
        while part := dict(islice(remaining, _MAX_PARTITIONS)):
            consumer.assign([TopicPartition(*place, offset) for place, offset in part.items()])
            _read(consumer, part, {place: found[place] for place in part}, at_most, deadline, errors)
    return found


def _read(
    consumer: Consumer,
    starts: Mapping[Place, int],
    found: Mapping[Place, FetchedRecords],
    at_most: int,
    deadline: float,
    errors: deque[KafkaError],
) -> None:
    remaining = set(starts)
    while remaining:
        is_over = time.monotonic() > deadline or len(errors) > _MAX_ERRORS
        for message in () if is_over else consumer.consume(_MAX_MESSAGES, _POLL_SECONDS):
            place = (message.topic(), message.partition())
            if place in remaining and _add(message, found[place], starts[place], at_most):
                remaining.discard(place)
                consumer.pause([TopicPartition(*place)])
        if is_over:
            break
    for place in remaining:
        found[place].error = found[place].error or SILENT
    for each in found.values():
        each.errors += len(errors)


def _add(message: Message, found: FetchedRecords, start: int, at_most: int) -> bool:
    """Add a message to the partition's result. Return whether the partition is done."""
    error = message.error()
    if error is None:
        if message.offset() >= start:  # a batch may start before
            found.records.append(_record(message))
        return len(found.records) >= at_most
    if error.code() == KafkaError._PARTITION_EOF:
        found.is_at_end = True
        return True
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        found.error = OUT_OF_RANGE
        return True
    found.errors += 1
    if error.retriable() and found.errors <= _MAX_ERRORS:
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
    errors: deque[KafkaError] = deque()
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
        "error_cb": errors.append,
    }
    consumer = Consumer(config, logger=QUIET)
    try:
        yield consumer, errors
    finally:
        close(consumer)
