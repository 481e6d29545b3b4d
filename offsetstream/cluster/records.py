"""Read records of a live cluster, with consumers that join no group and commit nothing."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, TypeAlias

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    Message,
    TopicPartition,
)

from offsetstream.cluster.answers import Place
from offsetstream.cluster.connection import QUIET, TIMEOUT, kafka_name
from offsetstream.cluster.properties import librdkafka_config
from offsetstream.cluster.rights import GROUP_PREFIX, OFFSETS_TOPIC
from offsetstream.errors import UnreachableError

IsolationLevel: TypeAlias = Literal["read_committed", "read_uncommitted"]
OUT_OF_RANGE, SILENT = "OFFSET_OUT_OF_RANGE", "REQUEST_TIMED_OUT"
_POLL_SECONDS = 0.1
_LOG_POLL_SECONDS, _LOG_MESSAGES = 0.2, 10_000  # where a complete log is read
_CLOSE_SECONDS = 20.0
_MAX_PARTITIONS, _MAX_MESSAGES = 500, 1000
_MAX_ERRORS = 20  # after which it stops to wait
_SMALL_FETCHES = {
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
    errors: deque[KafkaError] = deque()
    settings = {
        **_SMALL_FETCHES,
        "enable.auto.offset.store": False,
        "isolation.level": isolation_level,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "error_cb": errors.append,
    }
    with consuming(bootstrap_server, properties, settings) as consumer:
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


@dataclass(frozen=True)
class LogRecord:
    """A record of the log. `timestamp_ms` is in milliseconds since 1970."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def read_log(
    bootstrap_server: str, properties: Mapping[str, str], partitions: Collection[int]
) -> Iterator[list[LogRecord]]:
    """Yield all committed records of offsets partitions, from start to end, in order for each partition.

    Raises UnreachableError if no record arrives for `TIMEOUT` seconds.
    """
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "error"}
    with consuming(bootstrap_server, properties, settings) as consumer:
        consumer.assign([TopicPartition(OFFSETS_TOPIC, partition, OFFSET_BEGINNING) for partition in partitions])
        remaining, deadline = set(partitions), time.monotonic() + TIMEOUT
        while remaining:
            if time.monotonic() > deadline:
                raise UnreachableError(
                    f"{bootstrap_server} returns no records of the offsets partitions {sorted(remaining)}"
                )
            messages = [each for each in consumer.consume(_LOG_MESSAGES, _LOG_POLL_SECONDS) if _is_record_or_end(each)]
            if any(each.partition() in remaining for each in messages):
                deadline = time.monotonic() + TIMEOUT
            remaining -= {each.partition() for each in messages if each.error() is not None}
            yield [
                LogRecord(each.partition(), each.offset(), each.timestamp()[1], each.key(), each.value())
                for each in messages
                if each.error() is None
            ]


def _is_record_or_end(message: Message) -> bool:
    """Return whether the message is a record or the end of a partition, and not another error."""
    return message.error() is None or message.error().code() == KafkaError._PARTITION_EOF


@contextmanager
def auto_committing_consumer(
    bootstrap_server: str, group: str, topics: Sequence[str], properties: Mapping[str, str] | None = None
) -> Iterator[Consumer]:
    """Yield a member of a group that commits what it has read, every five seconds and at the end.

    It continues at the committed offsets, or at the start of the log without one. `properties` are client properties.
    """
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": True}
    with consuming(bootstrap_server, properties or {}, settings) as consumer:
        consumer.subscribe(list(topics))
        yield consumer


@contextmanager
def consuming(bootstrap_server: str, properties: Mapping[str, str], settings: Mapping[str, Any]) -> Iterator[Consumer]:
    """Yield a consumer with librdkafka's `settings`. Unless they say otherwise, it commits nothing."""
    config = {
        "client.id": "offsetstream",
        **librdkafka_config(properties, bootstrap_server),
        "bootstrap.servers": bootstrap_server,
        "group.id": GROUP_PREFIX,  # never joined; has the prefix of Spark's groups, so it needs no other right
        "enable.auto.commit": False,
        **settings,
    }
    consumer = Consumer(config, logger=QUIET)
    try:
        yield consumer
    finally:
        close(consumer)


def close(consumer: Consumer) -> None:
    """Close a consumer. Give up after 20 seconds; the end of the process then closes it.

    After a broker's restart, librdkafka (2.16) sometimes waits forever for one of its own threads.
    """
    closing = threading.Thread(target=consumer.close, name="close a consumer", daemon=True)
    closing.start()
    closing.join(_CLOSE_SECONDS)
