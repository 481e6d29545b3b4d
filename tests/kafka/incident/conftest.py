"""The incident, which takes five minutes: played once for all tests that ask about it (tests/conftest.py)."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.kafka.incident.recording import Recorded, record

SEEDS = (1, 2, 3, 4, 5)


@pytest.fixture(scope="session", params=SEEDS)
def recorded(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """One of each seed; only read from it."""
    return record(spark, tmp_path_factory.mktemp("incident"), request.param)
