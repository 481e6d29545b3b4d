"""A seeded sample of the crash matrix; `make crash-matrix` kills at every file of every scenario."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.reliability.crash_matrix import SCENARIOS, CrashMatrix, crash_matrix

SEED = 7


@pytest.fixture(scope="module")
def matrix(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashMatrix]:
    with crash_matrix(spark, tmp_path_factory.mktemp("crash"), SEED) as made:
        yield made


@pytest.mark.parametrize("scenario", SCENARIOS)  # in their order: each begins where the one before it ended
def test_a_kill_changes_nothing(matrix: CrashMatrix, scenario: str) -> None:
    with matrix.scenario(scenario) as step:
        kills, wrong = step.crash(*step.points(1, SEED))
    assert [kill.last is not None for kill in kills] == [True], kills
    assert wrong == [], kills
