"""Kafka's own Admin client (Java), for what confluent-kafka lacks or does differently.

Offsets go this way, since confluent-kafka (2.16) ignores the length of their metadata: it appends a NUL, which ends up
in the log, and reads past the end of metadata without one. The client may also run in Spark's JVM.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JError, Py4JJavaError
from tenacity import retry_if_exception

from offsetstream.cluster.answers import CommittedOffset, Place
from offsetstream.cluster.connection import COORDINATOR_MOVES, patience
from offsetstream.cluster.login import java_plugins
from offsetstream.cluster.properties import java_system_properties
from offsetstream.embedded.artifacts import resolve
from offsetstream.embedded.jvm import DEFAULT_VERSION, java_gateway
from offsetstream.errors import ClusterError, EnvironmentNotReadyError, UnauthorisedError, UnreachableError
from offsetstream.settings.places import is_databricks

LIBRARIES = (f"org.apache.kafka:kafka-clients:{DEFAULT_VERSION}", "org.slf4j:slf4j-nop:1.7.36")
# More libraries that the client needs for OAUTHBEARER.
TOKENS = ("com.fasterxml.jackson.core:jackson-databind:2.21.7", "org.bitbucket.b_c:jose4j:0.9.6")
Answer = TypeVar("Answer")
NO_ANSWER = frozenset({"REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", *COORDINATOR_MOVES})
NO_RIGHT_TO_GROUP = "GROUP_AUTHORIZATION_FAILED"
# By default, the client (4.3.1) retries a missing leader or coordinator 10,000 times a second. With these properties it
# gives up soon, and `JavaAdmin.retried` retries with pauses.
LIMITED_RETRIES = {"retries": "3"}
_MIN_SECONDS = 1.0


@contextmanager
def java_admin(bootstrap_server: str, properties: Mapping[str, str]) -> Iterator[JavaAdmin]:
    """Yield a new JVM and the client in it. `properties` are Kafka's client properties.

    Raises EnvironmentNotReadyError if Java or the client's jars are missing, ClusterError if a request fails.
    """
    libraries = LIBRARIES if properties.get("sasl.mechanism") != "OAUTHBEARER" else (*LIBRARIES, *TOKENS)
    with java_gateway(resolve((*libraries, *java_plugins(properties))), auto_convert=True) as gateway:
        for name, value in java_system_properties(properties).items():
            gateway.jvm.java.lang.System.setProperty(name, value)
        settings = gateway.jvm.java.util.HashMap()
        for name, value in {**properties, "bootstrap.servers": bootstrap_server}.items():
            settings[name] = value
        try:
            client = gateway.jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
            yield JavaAdmin(gateway.jvm, client)
        except Py4JError as error:
            raise as_error(bootstrap_server, error) from error


class JavaAdmin(NamedTuple):
    """Kafka's Admin client, and the JVM that runs it."""

    jvm: Any
    client: Any

    @property
    def classes(self) -> Any:
        """Return the package of the Admin client's classes."""
        return self.jvm.org.apache.kafka.clients.admin

    def place(self, place: Place) -> Any:
        """Return a partition as Java has it."""
        return self.jvm.org.apache.kafka.common.TopicPartition(*place)

    def error_name(self, error: Py4JJavaError) -> str:
        """Return Kafka's name of an error (org.apache.kafka.common.protocol.Errors): the innermost in its causes."""
        errors = self.jvm.org.apache.kafka.common.protocol.Errors
        cause, name = error.java_exception, "UNKNOWN_SERVER_ERROR"
        while cause is not None:
            found = str(errors.forException(cause).name())
            name, cause = (found if found != "UNKNOWN_SERVER_ERROR" else name), cause.getCause()
        return name

    def retried(self, ask: Callable[[], Answer], timeout: float) -> Answer:
        """Send a request, and retry for `timeout` seconds while a coordinator moves, loads or does not answer."""

        def is_temporary(error: BaseException) -> bool:
            return isinstance(error, Py4JJavaError) and self.error_name(error) in NO_ANSWER

        answer: Answer = patience(retry_if_exception(is_temporary), timeout)(ask)
        return answer

    def error_of(self, future: Any) -> str | None:
        """Return Kafka's name of the error of one partition or group (None: done). Raise one of the whole request."""
        try:
            future.get()
        except Py4JJavaError as error:
            name = self.error_name(error)
            if name in NO_ANSWER or name == NO_RIGHT_TO_GROUP:
                raise
            return name
        return None

    def fetch(
        self, group_id: str, partitions: Collection[Place] | None, timeout: float, *, require_stable: bool
    ) -> dict[Place, CommittedOffset]:
        """Return the committed offsets of the partitions (None: all), without partitions that have an error.

        With named partitions, those without an offset are omitted, too. Without, a partition with a negative committed
        offset has no offset in the result. Retries for `timeout` seconds while the coordinator moves or loads. Raises
        what `java_admin` raises.
        """
        spec = self.classes.ListConsumerGroupOffsetsSpec()
        if partitions is not None:
            spec = spec.topicPartitions([self.place(place) for place in partitions])
        left_ms = _time_left(timeout)

        def ask() -> Any:
            options = self.classes.ListConsumerGroupOffsetsOptions().timeoutMs(left_ms()).requireStable(require_stable)
            found = self.client.listConsumerGroupOffsets({group_id: spec}, options)
            return found.partitionsToOffsetAndMetadata(group_id).get()

        return {
            (place.topic(), place.partition()): CommittedOffset(None)
            if committed is None
            else CommittedOffset(committed.offset(), committed.leaderEpoch().orElse(None), committed.metadata())
            for place, committed in self.retried(ask, timeout).items()
            if committed is not None or partitions is None
        }

    def commit(
        self, group_id: str, offsets: Mapping[Place, CommittedOffset], timeout: float
    ) -> dict[Place, str | None]:
        """Commit offsets to the group's coordinator. Return Kafka's name of each partition's error (None: done).

        Retries and raises like `fetch`, also if the coordinator does not answer in time.
        """
        commits, places = self.jvm.java.util.HashMap(), {place: self.place(place) for place in offsets}
        optional = self.jvm.java.util.Optional
        for place, each in offsets.items():
            epoch = optional.empty() if each.leader_epoch is None else optional.of(each.leader_epoch)
            to_commit = self.jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(each.offset, epoch, each.metadata)
            commits[places[place]] = to_commit
        left_ms = _time_left(timeout)

        def ask() -> dict[Place, str | None]:
            options = self.classes.AlterConsumerGroupOffsetsOptions().timeoutMs(left_ms())
            result = self.client.alterConsumerGroupOffsets(group_id, commits, options)
            return {place: self.error_of(result.partitionResult(java)) for place, java in places.items()}

        return self.retried(ask, timeout)


def _time_left(timeout: float) -> Callable[[], int]:
    """Return a function for the remaining milliseconds of `timeout` seconds, at least one second."""
    deadline = time.monotonic() + timeout
    return lambda: round(max(deadline - time.monotonic(), _MIN_SECONDS) * 1000)


def root_cause(error: Py4JJavaError) -> Any:
    """Return the innermost Java exception of an error."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return cause


def optional_text(optional: Any) -> str | None:
    """Return the value of a Java Optional as text, None if it is empty."""
    return str(optional.get().toString()) if optional.isPresent() else None


def type_of_listed(group: Any) -> str:
    """Return the type of a listed group. Brokers before 3.8 only have classic groups and return no type."""
    return optional_text(group.type()) or "Classic"


def as_error(bootstrap_server: str, error: Py4JError) -> ClusterError:
    """Return our error for an error of Kafka's client or of its JVM."""
    if not isinstance(error, Py4JJavaError):
        return ClusterError(f"the JVM of Kafka's Admin client failed: {error}")
    cause = root_cause(error)
    name, message = cause.getClass().getSimpleName(), cause.getMessage()
    kind: type[ClusterError] = ClusterError
    if "Authorization" in name or "Authentication" in name:
        kind = UnauthorisedError
    elif any(word in name for word in ("Timeout", "Disconnect", "Coordinator")):
        kind = UnreachableError
    return kind(f"a request to {bootstrap_server} by Kafka's Admin client failed: {name}: {message}")


def plain_packages(jvm: Any) -> Any:
    """Return the packages `java` and `org` of Spark's JVM, with Kafka's classes in `org` under their usual names.

    Raises what `kafka_classes` raises.
    """
    kafka_classes(jvm)
    return SimpleNamespace(java=jvm.java, org=jvm.kafkashaded.org if is_databricks() else jvm.org)


def kafka_classes(jvm: Any) -> Any:
    """Return the package `org.apache.kafka` of Spark's JVM. Raises EnvironmentNotReadyError if it is missing."""
    found = jvm.kafkashaded.org.apache.kafka if is_databricks() else jvm.org.apache.kafka
    if isinstance(found.common.utils.LogContext, JavaPackage):  # py4j returns a package for a missing class
        raise EnvironmentNotReadyError(
            f"Spark's JVM has no Kafka client at {found._fqn}: use a runtime that has one (docs/how-to/databricks.md)"
        )
    return found
