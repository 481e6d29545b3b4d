"""No acknowledged commit to a table on S3 is lost. `python -m tests.reliability.s3_commits` runs all of it."""

from __future__ import annotations

import pytest

from testkit.s3_server import S3Server
from tests.reliability.s3_commits import rivals, zombies

pytestmark = pytest.mark.nightly


def test_a_writer_paused_in_a_commit_and_replaced_loses_no_commit(s3: S3Server) -> None:
    found = zombies(s3, versions=120, seed=3, each=30)
    assert found.zombies >= 3
    assert (found.lost, found.twice, found.in_the_log) == (0, 0, found.acknowledged)


def test_two_concurrent_writers_lose_no_commit(s3: S3Server) -> None:
    found = rivals(s3, "driver", versions=100)
    assert (found.lost, found.twice, found.in_the_log) == (0, 0, found.acknowledged)
