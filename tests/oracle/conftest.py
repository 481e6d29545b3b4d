"""One JVM with Kafka classes of several releases for the complete session."""

from collections.abc import Iterator

import pytest
from py4j.java_gateway import JavaGateway

from offsetstream.embedded.artifacts import resolve
from offsetstream.embedded.jvm import java_gateway
from tests.oracle.cases import Case
from tests.oracle.kafka_classes import KafkaClasses


@pytest.fixture(scope="session")
def gateway() -> Iterator[JavaGateway]:
    with java_gateway() as running:
        yield running


def _group_coordinator(gateway: JavaGateway, release: str) -> KafkaClasses:
    return KafkaClasses(gateway, resolve([f"org.apache.kafka:kafka-group-coordinator:{release}"]), release)


@pytest.fixture(scope="session")
def kafka_4_4(gateway: JavaGateway) -> KafkaClasses:
    return _group_coordinator(gateway, "4.4.0")


@pytest.fixture(scope="session")
def kafka_4_3(gateway: JavaGateway) -> KafkaClasses:
    return _group_coordinator(gateway, "4.3.1")


@pytest.fixture(scope="session")
def kafka_4_0(gateway: JavaGateway) -> KafkaClasses:
    return _group_coordinator(gateway, "4.0.2")


@pytest.fixture(scope="session")
def kafka_3_9(gateway: JavaGateway) -> KafkaClasses:
    return _group_coordinator(gateway, "3.9.2")


@pytest.fixture(scope="session")
def kafka_3_7(gateway: JavaGateway) -> KafkaClasses:
    return _group_coordinator(gateway, "3.7.2")


@pytest.fixture(scope="session")
def tools_4_3(gateway: JavaGateway) -> KafkaClasses:
    return KafkaClasses(gateway, resolve(["org.apache.kafka:kafka-tools:4.3.1"]), "4.3.1")


@pytest.fixture(scope="session")
def tools_4_4(gateway: JavaGateway) -> KafkaClasses:
    return KafkaClasses(gateway, resolve(["org.apache.kafka:kafka-tools:4.4.0"]), "4.4.0")


@pytest.fixture(scope="session")
def broker_3_9(gateway: JavaGateway) -> KafkaClasses:
    return KafkaClasses(gateway, resolve(["org.apache.kafka:kafka_2.13:3.9.2"]), "3.9.2")


@pytest.fixture
def kafka(case: Case, request: pytest.FixtureRequest) -> KafkaClasses:
    """The classes of the case's release."""
    major, minor, _ = case.release.split(".")
    classes: KafkaClasses = request.getfixturevalue(f"kafka_{major}_{minor}")
    assert classes.release == case.release
    return classes
