"""Kafka's own Admin client (Java), for what confluent-kafka lacks or does differently."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JError, Py4JJavaError
from tenacity import retry_if_exception

from offsetstream.cluster.connection import COORDINATOR_MOVES, patience
from offsetstream.cluster.login import java_plugins
from offsetstream.cluster.properties import java_system_properties
from offsetstream.embedded.artifacts import resolve
from offsetstream.embedded.jvm import DEFAULT_VERSION, java_gateway
from offsetstream.errors import ClusterError, EnvironmentNotReadyError, UnauthorisedError, UnreachableError
from offsetstream.settings.databricks import is_databricks

LIBRARIES = (f"org.apache.kafka:kafka-clients:{DEFAULT_VERSION}", "org.slf4j:slf4j-nop:1.7.36")
# More libraries that the client needs for OAUTHBEARER.
TOKENS = ("com.fasterxml.jackson.core:jackson-databind:2.21.7", "org.bitbucket.b_c:jose4j:0.9.6")
Answer = TypeVar("Answer")
NO_ANSWER = frozenset({"REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", *COORDINATOR_MOVES})
NO_RIGHT_TO_GROUP = "GROUP_AUTHORIZATION_FAILED"
# By default, the client (4.3.1) retries a missing leader or coordinator 10,000 times a second. With these properties it
# gives up soon, and `retry_while_unavailable` retries with pauses.
LIMITED_RETRIES = {"retries": "3"}


@contextmanager
def java_admin(bootstrap_server: str, properties: Mapping[str, str]) -> Iterator[tuple[Any, Any]]:
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
            yield gateway.jvm, gateway.jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
        except Py4JError as error:
            raise as_error(bootstrap_server, error) from error


def root_cause(error: Py4JJavaError) -> Any:
    """Return the innermost Java exception of an error."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return cause


def error_name(jvm: Any, error: Py4JJavaError) -> str:
    """Return Kafka's name of an error (org.apache.kafka.common.protocol.Errors): the innermost one in its causes."""
    errors = jvm.org.apache.kafka.common.protocol.Errors
    cause, name = error.java_exception, "UNKNOWN_SERVER_ERROR"
    while cause is not None:
        found = str(errors.forException(cause).name())
        name, cause = (found if found != "UNKNOWN_SERVER_ERROR" else name), cause.getCause()
    return name


def retry_while_unavailable(jvm: Any, ask: Callable[[], Answer], timeout: float) -> Answer:
    """Send a request, and retry for `timeout` seconds while a coordinator moves, loads or does not answer."""

    def is_temporary(error: BaseException) -> bool:
        return isinstance(error, Py4JJavaError) and error_name(jvm, error) in NO_ANSWER

    answer: Answer = patience(retry_if_exception(is_temporary), timeout)(ask)
    return answer


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
