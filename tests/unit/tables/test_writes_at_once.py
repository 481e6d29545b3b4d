"""Writes in several threads while another thread holds Python's lock and waits for a store."""

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
def test_concurrent_writes_and_listings_do_not_deadlock(rows: str, workers: str | None, tmp_path: Path) -> None:
    """On two cores, a heartbeat, a write of a batch and a listing of files once waited for each other for ever."""
    environment = {name: value for name, value in os.environ.items() if name != "TOKIO_WORKER_THREADS"}
    environment |= {"TOKIO_WORKER_THREADS": workers} if workers else {}
    command = [sys.executable, "-m", "tests.unit.tables.writes_during_listings", str(tmp_path), rows]
    subprocess.run(command, env=environment, check=True, timeout=SECONDS)
