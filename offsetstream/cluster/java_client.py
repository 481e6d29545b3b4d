"""Kafka's own Admin client, for what confluent-kafka does not see, or does otherwise; it needs Java."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from offsetstream.cluster.msk import java_plugins
from offsetstream.cluster.properties import java_system_properties
from offsetstream.embedded.artifacts import resolve
from offsetstream.embedded.gateway import java_gateway
from offsetstream.embedded.kafka import DEFAULT_VERSION
from offsetstream.errors import ClusterError, UnauthorisedError, UnreachableError

_LIBRARIES = (f"org.apache.kafka:kafka-clients:{DEFAULT_VERSION}", "org.slf4j:slf4j-nop:1.7.36")
# What the client needs besides for OAUTHBEARER, and does not bring along.
_TOKENS = ("com.fasterxml.jackson.core:jackson-databind:2.21.2", "org.bitbucket.b_c:jose4j:0.9.6")


@contextmanager
def java_admin(bootstrap_server: str, properties: Mapping[str, str]) -> Iterator[tuple[Any, Any]]:
    """Give a JVM of its own and the client in it; `properties` are Kafka's client properties.

    Raises EnvironmentNotReadyError where Java or the client's jars are missing, ClusterError where a question fails.
    """
    libraries = _LIBRARIES if properties.get("sasl.mechanism") != "OAUTHBEARER" else (*_LIBRARIES, *_TOKENS)
    with java_gateway(resolve((*libraries, *java_plugins(properties))), auto_convert=True) as gateway:
        for name, value in java_system_properties(properties).items():
            gateway.jvm.java.lang.System.setProperty(name, value)
        settings = gateway.jvm.java.util.HashMap()
        for name, value in {**properties, "bootstrap.servers": bootstrap_server}.items():
            settings[name] = value
        try:
            yield gateway.jvm, gateway.jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
        except Py4JJavaError as error:
            raise _as_error(bootstrap_server, error) from error
        except Py4JError as error:
            raise ClusterError(f"Kafka's Admin client ended: {error}") from error


def root_cause(error: Py4JJavaError) -> Any:
    """Return the exception of Java's that is at the bottom of an error."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return cause


def error_name(jvm: Any, error: Py4JJavaError) -> str:
    """Return Kafka's name of an error (org.apache.kafka.common.protocol.Errors)."""
    return str(jvm.org.apache.kafka.common.protocol.Errors.forException(root_cause(error)).name())


def _as_error(bootstrap_server: str, error: Py4JJavaError) -> ClusterError:
    cause = root_cause(error)
    name, message = cause.getClass().getSimpleName(), cause.getMessage()
    kind: type[ClusterError] = ClusterError
    if "Authorization" in name or "Authentication" in name:
        kind = UnauthorisedError
    elif any(word in name for word in ("Timeout", "Disconnect", "Coordinator")):
        kind = UnreachableError
    return kind(f"{bootstrap_server} does not answer Kafka's Admin client: {name}: {message}")
