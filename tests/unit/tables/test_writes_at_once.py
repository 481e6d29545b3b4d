"""Writes of several threads beside what holds Python's lock while it waits for a store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.waiting import SECONDS


@pytest.mark.parametrize(
    ("rows", "workers"), [pytest.param("made", None, id="as of itself"), pytest.param("memory", "2", id="few threads")]
)
def test_nobody_waits_for_ever(rows: str, workers: str | None, tmp_path: Path) -> None:
    """On two cores a heartbeat, a write of the batch and a listing of files waited for each other."""
    environment = {name: value for name, value in os.environ.items() if name != "TOKIO_WORKER_THREADS"}
    environment |= {"TOKIO_WORKER_THREADS": workers} if workers else {}
    command = [sys.executable, "-m", "tests.unit.tables.writes_beside_listings", str(tmp_path), rows]
    subprocess.run(command, env=environment, check=True, timeout=SECONDS)
