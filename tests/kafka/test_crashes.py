"""A seeded sample of the crash matrix, and zombies. `make crash-matrix` kills at every file of every scenario."""

import signal
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.reliability.crash_matrix import SCENARIOS, CrashMatrix, crash_matrix

pytestmark = pytest.mark.nightly

SEED = 7
# Where a job is stopped until another one takes over: in the first writes of a batch, and in the middle of a load.
ZOMBIES = {"steady state": "offset_commits", "reload": "committed_offsets"}


@pytest.fixture(scope="module")
def matrix(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashMatrix]:
    with crash_matrix(spark, tmp_path_factory.mktemp("crash"), SEED) as tested:
        yield tested


@pytest.mark.parametrize("scenario", SCENARIOS)  # in order: each starts where the previous one ended
def test_a_kill_changes_nothing(matrix: CrashMatrix, scenario: str) -> None:
    with matrix.scenario(scenario) as step:
        kills, wrong = step.crash(*step.points(1, SEED))
        assert [kill.last is not None for kill in kills] == [True], kills
        assert wrong == [], kills
        if scenario in ZOMBIES:
            assert_a_zombie_writes_nothing(matrix, ZOMBIES[scenario])


def assert_a_zombie_writes_nothing(matrix: CrashMatrix, table: str) -> None:
    matrix.restore()
    with matrix.zombie(table) as zombie:
        assert matrix.job.run(force=True) == []
        versions = matrix.versions()
        zombie.signal(signal.SIGCONT)
        assert zombie.ended() == 1, zombie.said()
        assert " ERROR another job has taken over the lease" in zombie.said()
        assert "Traceback" not in zombie.said()
        assert matrix.versions() == versions
