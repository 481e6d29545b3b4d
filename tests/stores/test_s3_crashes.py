"""A seeded sample of kills at S3 writes; `python -m tests.reliability.s3_crashes` kills at each write."""

from __future__ import annotations

from pathlib import Path

import pytest

from offsetstream.demo.workload import Workload
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.s3_server import S3Server
from tests.reliability.s3_crashes import run, s3_crashes

pytestmark = pytest.mark.nightly

KILLS, SEED = 2, 11


def test_a_kill_leaves_the_same_tables(
    s3: S3Server, own_kafka: EmbeddedKafka, workload: Workload, tmp_path: Path
) -> None:
    said: list[str] = []
    # Each batch differs and may make fewer writes: then its job ended before the kill.
    assert run(s3_crashes(s3, own_kafka, workload, tmp_path), KILLS, SEED, said.append) >= 1, said
