"""Kafka's own Java clients in one JVM: share consumers, Kafka Streams and other clients that confluent-kafka lacks.

A thread of the JVM polls each client until it leaves or the JVM ends. At the end of the JVM the clients disappear as
in a crash, and their groups keep them until their sessions end.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from py4j.java_gateway import JavaGateway

from offsetstream.embedded.artifacts import resolve
from offsetstream.embedded.jvm import java_gateway

SESSION_MS = 1_800_000  # the longest that brokers allow: a crashed client stays a member for the rest of the test
_POLL_MS = 50
_TRANSACTION_MS = 900_000
_CONSUMER = "org.apache.kafka.clients.consumer.Consumer"
_STRINGS = "org.apache.kafka.common.serialization.Serdes$StringSerde"
_BYTES = "org.apache.kafka.common.serialization.ByteArray"

Place = tuple[str, int]  # topic and partition


class Member:
    """A consumer that a JVM thread polls: it joins, rebalances and reads until it leaves."""

    def __init__(self, clients: "JavaClients", consumer: Any, interface: str) -> None:
        self._clients, self._consumer, self._interface = clients, consumer, interface
        self._thread = clients.jvm.java.util.concurrent.ScheduledThreadPoolExecutor(1)
        poll = clients.runnable(interface, "poll", consumer, clients.duration(_POLL_MS))
        milliseconds = clients.jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        self._polling = self._thread.scheduleWithFixedDelay(poll, 0, _POLL_MS, milliseconds)

    def check(self) -> None:
        """Raise the error that ended the polling, if any."""
        if self._polling.isDone():
            self._polling.get()

    def commit(self, offsets: Mapping[Place, int] | None = None) -> None:
        """Commit what the last poll returned, or these offsets."""
        self._do("commitSync", *([] if offsets is None else [self._clients.offset_map(offsets)]))

    def leave(self) -> None:
        """Close the consumer, so that it leaves its group."""
        self._do("close")
        self._thread.shutdownNow()

    def _do(self, method: str, *arguments: Any) -> None:
        """Run a method between two polls, in the polling thread: a consumer allows one thread at a time."""
        self._thread.submit(self._clients.runnable(self._interface, method, self._consumer, *arguments)).get()


class JavaClients:
    """Creates clients of one broker; a keyword `a_b` sets the client's property `a.b`."""

    def __init__(self, gateway: JavaGateway, bootstrap_server: str, folder: Path) -> None:
        self.jvm = gateway.jvm
        self._gateway, self._bootstrap_server, self._folder = gateway, bootstrap_server, folder

    def consumer(self, group_id: str, *topics: str, **properties: Any) -> Member:
        """Return a member of a classic group, or of a KIP-848 group with `group_protocol="consumer"`."""
        consumer = self._consumer(group_id, properties)
        consumer.subscribe(list(topics))
        return Member(self, consumer, _CONSUMER)

    def regex_consumer(self, group_id: str, pattern: str, **properties: Any) -> Member:
        """Return a member of a KIP-848 group whose coordinator resolves the pattern."""
        consumer = self._consumer(group_id, {"group_protocol": "consumer", **properties})
        consumer.subscribe(self.jvm.org.apache.kafka.clients.consumer.SubscriptionPattern(pattern))
        return Member(self, consumer, _CONSUMER)

    def share_consumer(self, group_id: str, *topics: str, **properties: Any) -> Member:
        """Return a member of a share group; each poll acknowledges the records of the previous one."""
        settings = self._settings(properties, group_id=group_id, **_deserializers())
        consumer = self.jvm.org.apache.kafka.clients.consumer.KafkaShareConsumer(settings)
        consumer.subscribe(list(topics))
        return Member(self, consumer, "org.apache.kafka.clients.consumer.ShareConsumer")

    def streams(self, application_id: str, topology: Any, **properties: Any) -> Any:
        """Return a started Java KafkaStreams object. `group_protocol` is classic or streams."""
        state = self._folder / f"{application_id}-{properties.get('client_id', '')}"
        settings = self._settings(
            {"default_key_serde": _STRINGS, "default_value_serde": _STRINGS, "num_stream_threads": 1, **properties},
            application_id=application_id,
            state_dir=str(state),
            commit_interval_ms=100,
            statestore_cache_max_bytes=0,
            auto_offset_reset="earliest",
        )
        java_properties = self.jvm.java.util.Properties()
        java_properties.putAll(settings)
        application = self.jvm.org.apache.kafka.streams.KafkaStreams(topology, java_properties)
        application.start()
        return application

    def leave(self, application: Any) -> None:
        """Close a KafkaStreams so that its members leave the group."""
        options = self.jvm.org.apache.kafka.streams.KafkaStreams.CloseOptions()
        application.close(options.leaveGroup(True))

    def copying_topology(self, source: str, target: str) -> Any:
        """Return a topology with one stateless subtopology."""
        builder = self.jvm.org.apache.kafka.streams.StreamsBuilder()
        builder.stream(source).to(target)
        return builder.build()

    def counting_topology(self, source: str) -> Any:
        """Return two subtopologies with a repartition topic between them; the second has a store with a changelog."""
        builder = self.jvm.org.apache.kafka.streams.StreamsBuilder()
        builder.stream(source).repartition().groupByKey().count()
        return builder.build()

    def commit(self, group_id: str, offsets: Mapping[Place, int], metadata: str = "") -> None:
        """Commit as a simple consumer (with assign())."""
        consumer = self._consumer(group_id, {})
        consumer.assign([self.place(place) for place in offsets])
        consumer.commitSync(self.offsets(offsets, metadata))
        consumer.close()

    def transaction(self, group_id: str, offsets: Mapping[Place, int], end: str | None) -> Any:
        """Commit in a transaction, then call `end`: commitTransaction, abortTransaction, or None to leave it open.

        Return the KafkaProducer, which is closed if its transaction ended.
        """
        settings = self._settings(
            {}, transactional_id=f"{group_id}-writer", transaction_timeout_ms=_TRANSACTION_MS, **_serializers()
        )
        producer = self.jvm.org.apache.kafka.clients.producer.KafkaProducer(settings)
        producer.initTransactions()
        producer.beginTransaction()
        group = self.jvm.org.apache.kafka.clients.consumer.ConsumerGroupMetadata(group_id)
        producer.sendOffsetsToTransaction(self.offsets(offsets), group)
        if end is not None:
            getattr(producer, end)()
            producer.close()
        return producer

    def admin(self) -> Any:
        """Return Kafka's Admin client."""
        return self.jvm.org.apache.kafka.clients.admin.AdminClient.create(self._settings({}))

    def place(self, place: Place) -> Any:
        return self.jvm.org.apache.kafka.common.TopicPartition(*place)

    def offsets(self, offsets: Mapping[Place, int], metadata: str = "") -> dict[Any, Any]:
        """Return offsets in the form that commits take, each with the leader epoch 0."""
        committed = self.jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata
        epoch = self.jvm.java.util.Optional.of(0)
        return {self.place(place): committed(offset, epoch, metadata) for place, offset in offsets.items()}

    def offset_map(self, offsets: Mapping[Place, int]) -> Any:
        """Return `offsets` as a java.util.Map, for calls by reflection."""
        found = self.jvm.java.util.HashMap()
        for place, committed in self.offsets(offsets).items():
            found[place] = committed
        return found

    def duration(self, milliseconds: int) -> Any:
        return self.jvm.java.time.Duration.ofMillis(milliseconds)

    def runnable(self, interface: str, method: str, target: Any, *arguments: Any) -> Any:
        """Return a java.lang.Runnable that calls the overload of the method that takes these arguments."""
        lang = self.jvm.java.lang
        methods = [m for m in lang.Class.forName(interface).getMethods() if m.getName() == method]
        found = next(m for m in methods if _takes(m.getParameterTypes(), arguments))
        handle = lang.invoke.MethodHandles.publicLookup().unreflect(found).bindTo(target)
        values = self._gateway.new_array(lang.Object, len(arguments))
        for index, argument in enumerate(arguments):
            values[index] = argument
        handle = lang.invoke.MethodHandles.insertArguments(handle, 0, values)
        return lang.invoke.MethodHandleProxies.asInterfaceInstance(lang.Class.forName("java.lang.Runnable"), handle)

    def _consumer(self, group_id: str, properties: Mapping[str, Any]) -> Any:
        classic = properties.get("group_protocol") != "consumer"
        timeout = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 500} if classic else {}
        defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **timeout}
        settings = self._settings({**defaults, **properties}, group_id=group_id, **_deserializers())
        return self.jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings)

    def _settings(self, properties: Mapping[str, Any], **more: Any) -> Any:
        settings = self.jvm.java.util.HashMap()
        settings["bootstrap.servers"] = self._bootstrap_server
        for name, value in {**properties, **more}.items():
            settings[name.replace("_", ".")] = str(value).lower() if isinstance(value, bool) else str(value)
        return settings


@contextmanager
def java_clients(bootstrap_server: str, release: str) -> Iterator[JavaClients]:
    """Run a JVM with clients of a release until the block ends; that end makes no client leave its group."""
    jars = resolve([f"org.apache.kafka:kafka-streams:{release}", "org.slf4j:slf4j-simple:1.7.36"])
    with TemporaryDirectory() as folder, java_gateway(jars, auto_convert=True) as gateway:
        yield JavaClients(gateway, bootstrap_server, Path(folder))


def _deserializers() -> dict[str, str]:
    return {"key_deserializer": f"{_BYTES}Deserializer", "value_deserializer": f"{_BYTES}Deserializer"}


def _serializers() -> dict[str, str]:
    return {"key_serializer": f"{_BYTES}Serializer", "value_serializer": f"{_BYTES}Serializer"}


def _takes(parameters: Sequence[Any], arguments: Sequence[Any]) -> bool:
    matches = [parameter.isInstance(argument) for parameter, argument in zip(parameters, arguments, strict=False)]
    return len(parameters) == len(arguments) and all(matches)
