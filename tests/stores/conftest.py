"""A broker with a workload of its own, all of whose groups can be compared."""

from collections.abc import Iterator

import pytest

from offsetstream.demo.workload import Workload, run_workload
from offsetstream.embedded.kafka import EmbeddedKafka


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as kafka:
        yield kafka


@pytest.fixture(scope="module")
def workload(own_kafka: EmbeddedKafka) -> Iterator[Workload]:
    with run_workload(own_kafka.bootstrap_server, groups=30, seed=5, say=lambda _line: None) as running:
        yield running
