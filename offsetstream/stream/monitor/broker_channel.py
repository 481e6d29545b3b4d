"""Requests to single brokers that no Kafka client offers: written as bytes, and sent by Kafka's Java network classes.

Those classes support every login mechanism, with the same properties as Spark's source. Requests and responses use
fixed versions of Kafka's wire format that brokers know since 2.3 (Kafka's protocol guide, KIP-320, KIP-392). One of
them is here: Fetch for partitions of the offsets topic, without a session.
"""

from __future__ import annotations

import os
import struct
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from offsetstream.cluster import connection
from offsetstream.cluster.client import Cluster
from offsetstream.cluster.java_client import kafka_classes
from offsetstream.cluster.properties import spark_properties
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.codec.batches import MAGIC_AT, SMALLEST_SIZE
from offsetstream.codec.wire import DecodeError, read_int16
from offsetstream.errors import ClusterError, RefusedLoginError, UnreachableError, first_line
from offsetstream.spark.source import set_java_properties

_CLIENT = b"offsetstream"
_API_VERSIONS = (18, 0)  # key and version
_POLL_MS, _IDLE_MS = 200, 540_000
_BUFFERS = (-1, -1)  # the system's default sizes
_LARGE = 256 << 10  # bytes of an answer
FETCH = (1, 11)  # key and version
_PLACE = struct.Struct(">qi")  # of a batch: base offset, size of the rest
_IN_REQUEST = struct.Struct(">iiqqi")  # partition, leader epoch, offset, log start of a follower, most bytes
# partition, error, high watermark, last stable offset, log start offset, count of aborted transactions
_IN_ANSWER = struct.Struct(">ihqqqi")
_ABORTED = struct.Struct(">qq")  # producer id, first offset


class BrokerTooOldError(ClusterError):
    """The broker does not support the version of a request: it is older than Kafka 2.3."""


class Leaders:
    """Connections to the brokers that lead the offsets partitions."""

    def __init__(self, spark: SparkSession, cluster: Cluster, properties: Mapping[str, str]) -> None:
        self._spark = spark
        self.cluster = cluster
        self._properties = properties

    def channels(self, partitions: Collection[int]) -> Iterator[tuple[BrokerChannel, list[int]]]:
        """Yield a connection to each leader of the partitions, with the partitions that it leads.

        A connection is closed when the next one is requested. Partitions without a leader are skipped. Raise what
        `Cluster` raises.
        """
        for address, numbers in self.led(partitions).items():
            with self.channel(address) as channel:
                yield channel, numbers

    def led(self, partitions: Collection[int]) -> dict[tuple[str, int], list[int]]:
        """Return which of the partitions each leader leads, by its address. Raise what `Cluster` raises."""
        found: dict[tuple[str, int], list[int]] = {}
        for number, address in self.cluster.leader_addresses().items():
            if number in partitions and address is not None:
                found.setdefault(address, []).append(number)
        return found

    @contextmanager
    def channel(self, address: tuple[str, int]) -> Iterator[BrokerChannel]:
        """Connect to a broker. Raise what `broker_channel` raises."""
        set_java_properties(self._spark, self._properties)
        with broker_channel(self._spark.sparkContext._jvm, address, self._properties) as channel:
            yield channel


@contextmanager
def broker_channel(jvm: Any, address: tuple[str, int], properties: Mapping[str, str]) -> Iterator[BrokerChannel]:
    """Connect to a broker with the client properties, and log in. `jvm` must have Kafka's clients.

    Raise UnreachableError after 30 seconds, RefusedLoginError if the broker refuses the login.
    """
    kafka, broker = kafka_classes(jvm), f"{address[0]}:{address[1]}"
    settings = jvm.java.util.HashMap()
    for name, value in {**spark_properties(properties), "bootstrap.servers": broker}.items():
        settings[name] = value
    clock, log, metrics = kafka.common.utils.Time.SYSTEM, kafka.common.utils.LogContext(), None
    try:
        config = kafka.clients.admin.AdminClientConfig(settings)
        builder = kafka.clients.ClientUtils.createChannelBuilder(config, clock, log)
        metrics = kafka.common.metrics.Metrics()
        selector = kafka.common.network.Selector(_IDLE_MS, metrics, clock, _CLIENT.decode(), builder, log)
    except Py4JJavaError as error:
        if metrics is not None:
            metrics.close()
        raise RefusedLoginError(f"cannot log in at {broker}: {first_line(error.java_exception)}") from error
    channel = BrokerChannel(jvm, kafka.common.network, selector, broker)
    try:
        channel.connect(address)
        yield channel
    finally:
        channel.close()
        selector.close()  # it closes the channel builder too
        metrics.close()


class _Handover:
    """A file by which the JVM hands large answers over: py4j would do it as Base64, with several copies in memory."""

    def __init__(self, jvm: Any) -> None:
        self._number, path = tempfile.mkstemp(prefix="offsetstream-answer-")
        try:
            self._java = jvm.java.io.RandomAccessFile(path, "rw").getChannel()
        finally:
            Path(path).unlink()  # it lives as long as it is open

    def bytes_of(self, buffer: Any) -> bytes:
        """Return the bytes of a Java ByteBuffer."""
        size: int = buffer.remaining()
        self._java.write(buffer, 0)
        return os.pread(self._number, size, 0)

    def close(self) -> None:
        self._java.close()
        os.close(self._number)


class BrokerChannel:
    """A connection to one broker, for one request after the other."""

    def __init__(self, jvm: Any, network: Any, selector: Any, broker: str) -> None:
        self._jvm = jvm
        self._network = network  # Kafka's package of this name
        self._selector = selector
        self._broker = broker
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] | None = None
        self._handover: _Handover | None = None

    def close(self) -> None:
        """Remove what large answers needed."""
        if self._handover is not None:
            self._handover.close()

    def connect(self, address: tuple[str, int]) -> None:
        """Connect, and log in."""
        try:
            self._selector.connect(self._broker, self._jvm.java.net.InetSocketAddress(*address), *_BUFFERS)
        except Py4JJavaError as error:
            raise self._unreachable(first_line(error.java_exception)) from error
        deadline, is_connected = self._deadline(), False
        while not (is_connected and self._selector.isChannelReady(self._broker)):
            self._poll(deadline)
            is_connected = is_connected or self._selector.connected().contains(self._broker)

    def ask(self, api_key: int, version: int, body: bytes) -> bytes:
        """Send a request, and return the body of the response, which may be large.

        Raise BrokerTooOldError, and UnreachableError if no response comes within 30 seconds.
        """
        if self._versions is None:
            self._versions = dict(_supported_versions(self._send(*_API_VERSIONS, b"")))
        lowest, highest = self._versions.get(api_key, (0, -1))
        if not lowest <= version <= highest:
            raise BrokerTooOldError(f"{self._broker} has no version {version} of the request {api_key}")
        return self._send(api_key, version, body)

    def _send(self, api_key: int, version: int, body: bytes) -> bytes:
        self._correlation_id += 1
        head = struct.pack(">hhih", api_key, version, self._correlation_id, len(_CLIENT)) + _CLIENT
        buffer = self._network.ByteBufferSend.sizePrefixed(self._jvm.java.nio.ByteBuffer.wrap(head + body))
        try:
            self._selector.send(self._network.NetworkSend(self._broker, buffer))
        except Py4JJavaError as error:  # the connection ended meanwhile
            raise self._unreachable(first_line(error.java_exception)) from error
        deadline = self._deadline()
        self._poll(deadline)  # the previous response is kept until this poll
        while not (received := self._jvm.java.util.ArrayList(self._selector.completedReceives())):
            self._poll(deadline)
        answer = self._bytes_of(received[0].payload())
        if int.from_bytes(answer[:4], "big") != self._correlation_id:
            raise self._unreachable("its response belongs to another request")
        return answer[4:]

    def _bytes_of(self, buffer: Any) -> bytes:
        if buffer.remaining() < _LARGE:
            small: bytes = buffer.array()
            return small
        self._handover = self._handover or _Handover(self._jvm)
        return self._handover.bytes_of(buffer)

    def _poll(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise self._unreachable("no answer in time")
        try:
            self._selector.poll(_POLL_MS)
        except Py4JJavaError as error:
            raise self._unreachable(first_line(error.java_exception)) from error
        state = self._selector.disconnected().get(self._broker)
        if state is not None:
            refusal = state.exception()
            if refusal is not None:
                raise RefusedLoginError(f"{self._broker} refuses this login: {refusal.getMessage()}")
            raise self._unreachable("it closed the connection")

    def _deadline(self) -> float:
        return time.monotonic() + connection.TIMEOUT

    def _unreachable(self, reason: str) -> UnreachableError:
        return UnreachableError(f"{self._broker} does not answer: {reason}")


def _supported_versions(answer: bytes) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the API key, the lowest and the highest version of each request that the broker supports."""
    error, at = read_int16(answer, 0)
    if error == 0:
        for key, lowest, highest in struct.iter_unpack(">hhh", answer[at + 4 :]):
            yield key, (lowest, highest)


def text(value: str) -> bytes:
    """Return the string in wire format."""
    return struct.pack(">h", len(value)) + value.encode()


class Place(NamedTuple):
    """From which offset of a partition to read, and its leader epoch; None if that is unknown.

    A broker with another epoch refuses: a former leader that does not know of the change may have another log.
    """

    number: int
    epoch: int | None
    offset: int


class Fetched(NamedTuple):
    """What an answer has of a partition. `aborted`: producer id and first offset of aborted transactions in it."""

    number: int
    error: int
    high_watermark: int
    last_stable_offset: int
    aborted: list[tuple[int, int]]
    records: memoryview

    @property
    def batches(self) -> Iterator[bytes]:
        """The complete batches. The size limit of the fetch may have cut the last one."""
        at = 0
        while at + MAGIC_AT < len(self.records):
            end = at + _PLACE.size + int(_PLACE.unpack_from(self.records, at)[1])
            if end - at < _PLACE.size + SMALLEST_SIZE or end > len(self.records):
                return
            yield bytes(self.records[at:end])
            at = end


def fetch_request(places: Sequence[Place], most_bytes: int, wait_ms: int = 0, *, read_committed: bool = False) -> bytes:
    """Return the body of a fetch. Every partition may fill the whole answer; the broker begins with the first one.

    `wait_ms`: how long the broker waits for a record, if it has none.
    """
    head = struct.pack(">iiiibii", -1, wait_ms, bool(wait_ms), most_bytes, read_committed, 0, -1)
    each = (
        _IN_REQUEST.pack(place.number, -1 if place.epoch is None else place.epoch, place.offset, -1, most_bytes)
        for place in places
    )
    topic = text(OFFSETS_TOPIC) + struct.pack(">i", len(places)) + b"".join(each)
    return head + struct.pack(">i", 1) + topic + struct.pack(">i", 0) + text("")


def fetched(answer: bytes) -> tuple[int, list[Fetched]]:
    """Return for how long the broker throttles this client (milliseconds), and the parts of its answer.

    When it throttles, the answer may have no part. Raises DecodeError if the answer is an error, or is cut.
    """
    try:
        throttled_ms, error, _, topics = struct.unpack_from(">ihii", answer)
        if error:
            raise DecodeError(f"the broker answers a fetch with error {error}")
        return throttled_ms, list(_parts(answer)) if topics else []
    except struct.error:
        raise DecodeError("the broker's answer to a fetch is cut") from None


def _parts(answer: bytes) -> Iterator[Fetched]:
    at = 14 + len(text(OFFSETS_TOPIC))
    (count,) = struct.unpack_from(">i", answer, at)
    at += 4
    for _ in range(count):
        number, error, high_watermark, stable, _, aborted_count = _IN_ANSWER.unpack_from(answer, at)
        at += _IN_ANSWER.size
        aborted = [_ABORTED.unpack_from(answer, at + _ABORTED.size * each) for each in range(aborted_count)]
        at += _ABORTED.size * len(aborted) + 4  # and the preferred replica
        (size,) = struct.unpack_from(">i", answer, at)
        records = memoryview(answer)[at + 4 : at + 4 + max(0, size)]
        yield Fetched(number, error, high_watermark, stable, aborted, records)
        at += 4 + len(records)
