"""A Spark session for the jobs that tests run in their own process, and a broker of their own to run them on."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.spark.local import local_session


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The one session of the process, stopped with it: Spark has no second one."""
    return local_session("local[2]")


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[EmbeddedKafka]:
    """A broker on which no other test makes groups, so that all of its groups can be compared."""
    with EmbeddedKafka() as kafka:
        yield kafka
