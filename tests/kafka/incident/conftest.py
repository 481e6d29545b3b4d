"""The incident takes five minutes, so it runs once for all tests that use it (tests/conftest.py)."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.kafka.incident.recording import Recorded, record

SEEDS = (1, 2, 3, 4, 5)


@pytest.fixture(scope="session", params=SEEDS)
def recorded(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """One incident for each seed. Tests must not change it."""
    return record(spark, tmp_path_factory.mktemp("incident"), request.param)
