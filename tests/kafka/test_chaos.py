"""Two minutes of chaos; `make chaos MINUTES=30` runs for longer."""

from pathlib import Path

import pytest

from tests.reliability.chaos import chaos

pytestmark = pytest.mark.nightly


def test_nothing_is_lost_or_doubled_while_brokers_and_the_job_are_killed(tmp_path: Path) -> None:
    figures = chaos(tmp_path / "job", seconds=120, seed=20261121, say=print)
    print(figures)
    assert figures.differences == []
    assert figures.broker_kills > 0
    assert figures.job_kills > 0
    assert [last_line for last_line in figures.job_ends if " ERROR " not in last_line] == []
