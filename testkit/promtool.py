"""Prometheus' own tool: it checks rules, tests them, and evaluates any expression over series that are given."""

from __future__ import annotations

import subprocess
from pathlib import Path

from testkit.programs import go_program

PROMTOOL = ("github.com/prometheus/prometheus/cmd/promtool", "v0.316.0")


def promtool(*arguments: str | Path, given: str = "") -> str:
    """Run it and return what it says; AssertionError with that where it finds something."""
    command = [str(go_program(*PROMTOOL)), *map(str, arguments)]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
