"""A broker of each release with groups of every type (a minute to set up), and a job's tables of it."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.ports import free_ports
from tests.kafka.every_group.all_groups import RELEASES, AllGroups, all_groups, broker_properties
from tests.kafka.jmx import jmx_options
from tests.kafka.jobs import JobRunner


@pytest.fixture(scope="package", params=RELEASES)
def every_group(request: pytest.FixtureRequest) -> Iterator[AllGroups]:
    """The broker and its groups, alive and at rest. Tests must not change them (tests/conftest.py).

    The fixture ends with this folder, because a hundred running clients take half a core.
    """
    release: str = request.param
    (port,) = free_ports(1)
    options = jmx_options(port)
    with (
        EmbeddedKafka(release, properties=broker_properties(release), jvm_options=options) as kafka,
        all_groups(kafka) as groups,
    ):
        groups.jmx_port = port
        yield groups


@pytest.fixture(scope="package")
def loaded(every_group: AllGroups, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> JobRunner:
    """A job that has applied all records. Tests must not change its tables."""
    runner = JobRunner(spark, every_group.kafka.bootstrap_server, tmp_path_factory.mktemp("every-group"))
    runner.run_once()
    return runner
