"""A Spark session for jobs that run in the tests' process, and a separate broker for them."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.spark.local import local_session


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The only session of the process, stopped at its end: Spark allows no second one."""
    return local_session("local[2]")


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[EmbeddedKafka]:
    """A broker on which no other test module creates groups, so that all of its groups can be compared."""
    with EmbeddedKafka() as kafka:
        yield kafka
