"""The command line: in a process of its own, as users run it, or within the tests', which takes no time to start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from click.testing import CliRunner

from offsetstream.cli.main import main

OFFSETSTREAM = (sys.executable, "-m", "offsetstream")
Done = subprocess.CompletedProcess[str]
JAVAS_LINE = "WARNING: Using incubator modules: jdk.incubator.vector"  # Java says so whenever PySpark starts it


def offsetstream(
    *arguments: str | bytes, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Done:
    """Run a command to its end, whatever that is; `environment` is beside the tests' own."""
    command, env = [*OFFSETSTREAM, *arguments], {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, env=env, cwd=cwd, check=False)
    return Done(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def within(*arguments: str) -> Done:
    """Run a command that starts no Spark to its end, within this process."""
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Done(arguments, result.exit_code, result.stdout, result.stderr)


def printed(*arguments: str | bytes, environment: Mapping[str, str] | None = None) -> str:
    """Return what a command prints; AssertionError with what it says where that is no success."""
    done = offsetstream(*arguments, environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
