"""Provides the broker for tests: one at a given address, one in a container, or the embedded one."""

import gc
import os
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import docker  # type: ignore[import-untyped]  # it ships no types
from docker.errors import DockerException  # type: ignore[import-untyped]
from testcontainers.core.container import DockerContainer

from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.jvm import DEFAULT_VERSION
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.ports import LOOPBACK, free_ports
from offsetstream.embedded.properties import Node, server_properties
from testkit.waiting import SECONDS

ADDRESS = "OFFSETSTREAM_TEST_BOOTSTRAP_SERVER"
_IMAGE = f"apache/kafka:{DEFAULT_VERSION}"


@dataclass(frozen=True)
class BrokerUnderTest:
    bootstrap_server: str
    origin: str


def origin() -> str:
    """Return a text that says where the broker comes from, without starting it."""
    if ADDRESS in os.environ:
        return f"{os.environ[ADDRESS]} ({ADDRESS})"
    if _container_engine_answers():
        return f"{_IMAGE} by testcontainers"
    return f"embedded Kafka {DEFAULT_VERSION} (no {ADDRESS}, no container engine)"


@contextmanager
def broker_for_tests() -> Iterator[BrokerUnderTest]:
    where = origin()
    if ADDRESS in os.environ:
        yield BrokerUnderTest(os.environ[ADDRESS], where)
    elif _container_engine_answers():
        with _kafka_in_a_container() as bootstrap_server:
            yield BrokerUnderTest(bootstrap_server, where)
    else:
        with EmbeddedKafka() as kafka:
            yield BrokerUnderTest(kafka.bootstrap_server, where)


@cache
def _container_engine_answers() -> bool:
    with warnings.catch_warnings():
        # docker's client leaves its socket open if no engine answers; collecting it here avoids a warning.
        warnings.simplefilter("ignore", ResourceWarning)
        answers = _ping()
        gc.collect()
    return answers


def _ping() -> bool:
    try:
        with closing(docker.from_env(timeout=5)) as client:
            return bool(client.ping())
    except DockerException:
        return False


@contextmanager
def _kafka_in_a_container() -> Iterator[str]:
    """Run Kafka's own image with the embedded broker's settings as environment variables.

    The port inside the container equals the published port, so one address works on both sides.
    """
    client_port, broker_port, controller_port = free_ports(3)
    node = Node(1, client_port, broker_port, controller_port)
    properties = server_properties(node, [node], DEFAULT_VERSION, Path("/var/lib/kafka/data"), [], {})
    properties["listeners"] = properties["listeners"].replace(f"CLIENT://{LOOPBACK}:", "CLIENT://0.0.0.0:")
    container = DockerContainer(_IMAGE)
    for name, value in properties.items():
        container.with_env(f"KAFKA_{name.upper().replace('.', '_')}", value)
    published: dict[str, Any] = container.ports
    published[f"{client_port}/tcp"] = (LOOPBACK, client_port)
    with container:
        bootstrap_server = f"{LOOPBACK}:{client_port}"
        admin_client(bootstrap_server).list_topics(timeout=SECONDS)
        yield bootstrap_server
