"""A Spark session for the jobs that tests run in their own process, and a cluster of their own to run them on."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.stream.session import local_session
from tests.kafka.all_groups import AllGroups, all_groups, broker_properties

RELEASES = ("3.9.2", "4.1.2", "4.3.1")


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The one session of the process, stopped with it: Spark has no second one."""
    return local_session("local[2]")


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[EmbeddedKafka]:
    """A broker on which no other test makes groups, so that all of its groups can be compared."""
    with EmbeddedKafka() as kafka:
        yield kafka


@pytest.fixture(scope="session", params=RELEASES)
def every_group(request: pytest.FixtureRequest) -> Iterator[AllGroups]:
    """A broker of each release with groups of every type, alive and at rest; only read from it (tests/conftest.py)."""
    release: str = request.param
    with EmbeddedKafka(release, properties=broker_properties(release)) as kafka, all_groups(kafka) as groups:
        yield groups
