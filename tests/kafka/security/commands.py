"""Commands as users give them: within the tests' process, or in one of their own where Spark must be theirs."""

import subprocess
import sys
from dataclasses import dataclass

from click.testing import CliRunner

from offsetstream.cli.main import main

_IN_A_PROCESS = ("run", "dump")


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it said."""

    returncode: int
    stdout: str
    stderr: str


def offsetstream(*arguments: str) -> Done:
    if arguments[0] in _IN_A_PROCESS:
        command = [sys.executable, "-m", "offsetstream", *arguments]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        return Done(process.returncode, process.stdout, process.stderr)
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Done(result.exit_code, result.stdout, result.stderr)
