"""What all tests share: their order, their processes, and the session's broker."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer

from offsetstream.embedded.java import java_home_for_spark
from offsetstream.tables.path_store import PathStore
from testkit.brokers import BrokerUnderTest, broker_for_tests, origin
from testkit.s3_server import S3Server, in_environment, s3_server
from testkit.tables import new_tables
from testkit.whole_files import InWholeFiles

pytest_plugins = ["testkit.plugin"]

# A Spark of the tests, also of a process that they start, lives for minutes: the second of the JVM's compilers
# took a fifth to a half of its processor time. With one of them Java has a fifth of the room for compiled code, of
# which two thirds were seen in use after a fifth of the tests.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")

# A slow machine is no failure: benchmarks/ measures time.
settings.register_profile("untimed", settings.default, deadline=None)
settings.load_profile("untimed")

# Quick tiers first. The oracle runs before PySpark, which changes how py4j reports errors in the process.
TIERS = ("benchmarks", "mutants", "unit", "browser", "oracle", "kafka", "spark", "doors", "stores", "release")
# Folders whose tests share a slow fixture.
IN_ONE_PROCESS = ("tests/oracle/", "tests/kafka/every_group/", "tests/kafka/incident/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)


def _tier(item: pytest.Item) -> str:
    return item.nodeid.removeprefix("tests/").partition("/")[0]


def _place(item: pytest.Item) -> tuple[int, str, bool]:
    """By tier; then by the workload's release, so that one runs at a time; tests that end its clients last."""
    tier = TIERS.index(_tier(item))
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return tier, str(parameters.get("every_group", "none")), "after_restart" in getattr(item, "fixturenames", ())


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> InWholeFiles:
    return InWholeFiles(config, log, in_one=IN_ONE_PROCESS)


def pytest_report_header() -> str:
    return f"kafka broker: {origin()}"


@pytest.fixture
def tables(tmp_path: Path) -> PathStore:
    """New tables of the cluster "cluster-1", before a first load."""
    return new_tables(tmp_path / "tables")


@pytest.fixture(scope="session", autouse=True)
def _java_for_spark_submit(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Without Java on the machine spark-submit needs a JAVA_HOME; everything else finds the packaged Java by itself."""
    if home := java_home_for_spark(tmp_path_factory.mktemp("java")):
        os.environ["JAVA_HOME"] = str(home)


@pytest.fixture(scope="session")
def kafka() -> Iterator[BrokerUnderTest]:
    """One broker for the session, with leftovers of other tests: use your own group and topic names."""
    with broker_for_tests() as broker:
        yield broker


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A real S3 server for the session, reachable from this process and all its children; use your own folders."""
    with s3_server() as server, in_environment(server.environment):
        yield server
