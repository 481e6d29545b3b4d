"""Class names in Databricks' runtime, which renames Kafka's Java classes and those of the login to Amazon MSK."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from offsetstream.errors import EnvironmentNotReadyError
from offsetstream.settings.databricks import is_databricks

# https://docs.databricks.com/aws/en/connect/streaming/kafka/authentication
_PREFIXES = {"org.apache.kafka.": "kafkashaded.", "software.amazon.msk.": "shadedmskiam."}
# Properties whose values start with a class name.
_NAMES_A_CLASS = (
    "sasl.jaas.config",
    "sasl.login.class",
    "sasl.login.callback.handler.class",
    "sasl.client.callback.handler.class",
)


def runtime_names(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the client properties with the class names of the runtime."""
    return {name: _in_runtime(value) if name in _NAMES_A_CLASS else value for name, value in properties.items()}


def _in_runtime(value: str) -> str:
    given = value.lstrip()
    return next((prefix + given for package, prefix in _PREFIXES.items() if given.startswith(package)), value)


def java_names(name: str) -> tuple[str, ...]:
    """Return the names under which Kafka's classes may read one of its system properties."""
    return (name, _in_runtime(name)) if is_databricks() else (name,)


def plain_packages(jvm: Any) -> Any:
    """Return the packages `java` and `org` of Spark's JVM, with Kafka's classes in `org` under their usual names.

    Raises what `kafka_classes` raises.
    """
    kafka_classes(jvm)
    return SimpleNamespace(java=jvm.java, org=jvm.kafkashaded.org if is_databricks() else jvm.org)


def kafka_classes(jvm: Any) -> Any:
    """Return the package `org.apache.kafka` of Spark's JVM. Raises EnvironmentNotReadyError if it is missing."""
    from py4j.java_gateway import JavaPackage  # noqa: PLC0415 - who has a JVM has this

    found = jvm.kafkashaded.org.apache.kafka if is_databricks() else jvm.org.apache.kafka
    if isinstance(found.common.utils.LogContext, JavaPackage):  # py4j returns a package for a missing class
        raise EnvironmentNotReadyError(
            f"Spark's JVM has no Kafka client at {found._fqn}: use a runtime that has one (docs/how-to/databricks.md)"
        )
    return found
