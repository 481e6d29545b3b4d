"""What all tests share: the broker of the session, and a word in the header on which one it is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import BrokerUnderTest, broker_for_tests, origin

# Quick ones first; and PySpark, once it runs, changes for the whole process how py4j reports the oracle's errors.
TIERS = ("unit", "oracle", "kafka", "spark")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)


def _tier(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]


def _place(item: pytest.Item) -> tuple[int, str, bool]:
    """By tier; then by the release of the workload, so that one of them runs at a time; last who ends its clients."""
    tier = TIERS.index(_tier(item))
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return tier, str(parameters.get("every_group", "")), "after_restart" in getattr(item, "fixturenames", ())


def pytest_report_header() -> str:
    return f"kafka broker: {origin()}"


@pytest.fixture(scope="session")
def kafka() -> Iterator[BrokerUnderTest]:
    """One broker for the session, with whatever other tests left on it: use group and topic names of your own."""
    with broker_for_tests() as broker:
        yield broker
