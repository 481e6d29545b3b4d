"""The tiers of tests: every line of long.txt and nightly.txt means some test, and not all of them are long."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import is_of, lines_of

ROOT = Path(__file__).parents[2]


def test_every_line_of_the_long_tests_means_some() -> None:
    folders = [f"tests/{name}" for name in ("browser", "doors", "kafka", "release", "spark", "stores", "unit")]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--disable-warnings", *folders]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
    ids = [line for line in found.stdout.splitlines() if "::" in line]
    assert len(ids) > 100
    lines = [*lines_of("long"), *lines_of("nightly")]
    assert [line for line in lines if not any(is_of(each, line) for each in ids)] == []
    short = [each for each in ids if not any(is_of(each, line) for line in lines)]
    assert {each.split("/")[1] for each in short} == {"doors", "kafka", "spark", "unit"}
