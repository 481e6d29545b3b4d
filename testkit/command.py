"""The command line in a process of its own, as users run it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

OFFSETSTREAM = (sys.executable, "-m", "offsetstream")
Done = subprocess.CompletedProcess[str]


def offsetstream(
    *arguments: str | bytes, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Done:
    """Run a command to its end, whatever that is; ``environment`` is beside the tests' own."""
    command, env = [*OFFSETSTREAM, *arguments], {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, env=env, cwd=cwd, check=False)
    return Done(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def printed(*arguments: str | bytes, environment: Mapping[str, str] | None = None) -> str:
    """Return what a command prints; AssertionError with what it says where that is no success."""
    done = offsetstream(*arguments, environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
