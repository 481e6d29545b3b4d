"""What all tests share: the broker of the session, and a word in the header on which one it is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import BrokerUnderTest, broker_for_tests, origin

# Quick ones first; and PySpark, once it runs, changes for the whole process how py4j reports the oracle's errors.
TIERS = ("unit", "oracle", "kafka", "spark")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    items.sort(key=lambda item: TIERS.index(item.path.relative_to(folder).parts[0]))


def pytest_report_header() -> str:
    return f"kafka broker: {origin()}"


@pytest.fixture(scope="session")
def kafka() -> Iterator[BrokerUnderTest]:
    """One broker for the session, with whatever other tests left on it: use group and topic names of your own."""
    with broker_for_tests() as broker:
        yield broker
