"""Requests to single brokers that no Kafka client offers: written as bytes, and sent by Kafka's Java network classes.

Those classes support every login mechanism, with the same properties as Spark's source. Requests and responses use
fixed versions of Kafka's wire format that brokers know since 2.3 (Kafka's protocol guide, KIP-320, KIP-392).
"""

from __future__ import annotations

import os
import struct
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from offsetstream.cluster import connection
from offsetstream.cluster.client import Cluster
from offsetstream.cluster.java_client import kafka_classes
from offsetstream.cluster.properties import spark_properties
from offsetstream.codec.wire import read_int16
from offsetstream.errors import ClusterError, RefusedLoginError, UnreachableError, first_line
from offsetstream.spark.source import set_java_properties

_CLIENT = b"offsetstream"
_API_VERSIONS = (18, 0)  # key and version
_POLL_MS, _IDLE_MS = 200, 540_000
_BUFFERS = (-1, -1)  # the system's default sizes
_LARGE = 256 << 10  # bytes of an answer


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
