"""What a person waits for who asks a question by a command: a process of its own over 100,000 committed offsets."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.results import Result, Samples, tell
from benchmarks.views import write_commits
from testkit.command import OFFSETSTREAM
from testkit.tables import new_tables

_COMMANDS = {
    "cold-lag": ("lag", "--group", "group-7", "--time"),
    "cold-status": ("groups", "status", "--group", "group-7"),
    "cold-then": ("offsets", "list", "--group", "group-7", "--at", "2026-01-05T11:58:20"),
    "cold-history": ("offsets", "history", "--group", "group-7"),
}
ROWS = tuple(_COMMANDS)
_CELLS, _ROUNDS = 100_000, 5
_NOTE = "of one group; its tables are as those of the views"


def measure(wanted: set[str], scale: float) -> Iterator[Result]:
    """Call each command several times."""
    with tempfile.TemporaryDirectory() as folder:
        new_tables(Path(folder))
        write_commits(Path(folder), round(_CELLS * scale))
        for name in (each for each in ROWS if each in wanted):
            what = " ".join(_COMMANDS[name])
            seconds = [tell(what, _seconds(_COMMANDS[name], folder)) for _ in range(_ROUNDS)]
            yield Result.of(name, Samples.of(what, "s", seconds), _NOTE)


def _seconds(command: tuple[str, ...], tables: str) -> float:
    started = time.monotonic()
    done = subprocess.run([*OFFSETSTREAM, *command, "--tables", tables], check=True, capture_output=True, text=True)
    if "group-7 " not in done.stdout:
        raise RuntimeError(f"the command showed no group: {done.stdout}")
    return time.monotonic() - started
