"""Databricks' runtime: it has Kafka's Java classes, and those that log in at Amazon's MSK, under names of its own."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from offsetstream.errors import EnvironmentNotReadyError
from offsetstream.settings.databricks import is_databricks

# https://docs.databricks.com/aws/en/connect/streaming/kafka/authentication
_PREFIXES = {"org.apache.kafka.": "kafkashaded.", "software.amazon.msk.": "shadedmskiam."}
# Properties whose values begin with the name of a class.
_NAMES_A_CLASS = (
    "sasl.jaas.config",
    "sasl.login.class",
    "sasl.login.callback.handler.class",
    "sasl.client.callback.handler.class",
)


def runtime_names(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the client properties with the runtime's names of classes; those that have them already stay."""
    return {name: _in_runtime(value) if name in _NAMES_A_CLASS else value for name, value in properties.items()}


def _in_runtime(value: str) -> str:
    given = value.lstrip()
    return next((prefix + given for package, prefix in _PREFIXES.items() if given.startswith(package)), value)


def java_names(name: str) -> tuple[str, ...]:
    """Return the names of a system property of Kafka's that its classes may ask for."""
    return (name, _in_runtime(name)) if is_databricks() else (name,)


def plain_packages(jvm: Any) -> Any:
    """Return the packages `java` and `org` of Spark's JVM, with Kafka's classes in `org` under their own names.

    Raises what `kafka_classes` does.
    """
    kafka_classes(jvm)
    return SimpleNamespace(java=jvm.java, org=jvm.kafkashaded.org if is_databricks() else jvm.org)


def kafka_classes(jvm: Any) -> Any:
    """Return the package `org.apache.kafka` of Spark's JVM; EnvironmentNotReadyError where it has none of this name."""
    from py4j.java_gateway import JavaPackage  # noqa: PLC0415 - who has a JVM has this

    found = jvm.kafkashaded.org.apache.kafka if is_databricks() else jvm.org.apache.kafka
    if isinstance(found.common.utils.LogContext, JavaPackage):  # as py4j has it for what is not there
        raise EnvironmentNotReadyError(
            f"Spark's JVM has no Kafka client as {found._fqn}: take a runtime that has one (docs/how-to/databricks.md)"
        )
    return found
