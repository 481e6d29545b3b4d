"""What all tests share: the broker of the session, and a word in the header on which one it is."""

from collections.abc import Iterator

import pytest

from tests.brokers import BrokerUnderTest, broker_for_tests, origin


def pytest_report_header() -> str:
    return f"kafka broker: {origin()}"


@pytest.fixture(scope="session")
def kafka() -> Iterator[BrokerUnderTest]:
    """One broker for the session, with whatever other tests left on it: use group and topic names of your own."""
    with broker_for_tests() as broker:
        yield broker
