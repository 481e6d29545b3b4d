"""What all tests share: their order, their processes, and the broker of the session."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.brokers import BrokerUnderTest, broker_for_tests, origin

# Quick ones first; and PySpark, once it runs, changes for the whole process how py4j reports the oracle's errors.
TIERS = ("unit", "oracle", "kafka", "spark", "release")
# Folders whose tests share what takes long to come about.
IN_ONE_PROCESS = ("tests/oracle/", "tests/kafka/every_group/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)


def _tier(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]


def _place(item: pytest.Item) -> tuple[int, str, bool]:
    """By tier; then by the release of the workload, so that one of them runs at a time; last who ends its clients."""
    tier = TIERS.index(_tier(item))
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return tier, str(parameters.get("every_group", "none")), "after_restart" in getattr(item, "fixturenames", ())


class InWholeFiles(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """Where several processes run (``--numprocesses``), the tests of a file stay together: they build on each other."""

    def _split_scope(self, nodeid: str) -> str:
        folder = next((folder for folder in IN_ONE_PROCESS if nodeid.startswith(folder)), None)
        return folder or nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> InWholeFiles:
    return InWholeFiles(config, log)


def pytest_report_header() -> str:
    return f"kafka broker: {origin()}"


@pytest.fixture(scope="session")
def kafka() -> Iterator[BrokerUnderTest]:
    """One broker for the session, with whatever other tests left on it: use group and topic names of your own."""
    with broker_for_tests() as broker:
        yield broker
