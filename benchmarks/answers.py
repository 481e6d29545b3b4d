"""How long commands and views take to answer over 100,000 committed offsets."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.results import Result, Samples, print_seconds
from benchmarks.views import VIEWS, measured_views, write_commits
from testkit.processes import OFFSETSTREAM
from testkit.tables import new_tables

_COMMANDS = {
    "describe": ("groups", "describe", "--group", "group-7"),
    "list": ("groups", "list"),
    "cold-lag": ("lag", "--group", "group-7", "--time"),
    "cold-status": ("groups", "status", "--group", "group-7", "--max-age", "none"),
    "cold-then": ("offsets", "list", "--group", "group-7", "--at", "2026-01-05T11:58:20"),
    "cold-history": ("offsets", "history", "--group", "group-7"),
}
ROWS = ("help", *_COMMANDS, *VIEWS)
_CELLS, _ROUNDS = 100_000, 5


def measure(wanted: set[str], scale: float) -> Iterator[Result]:
    """Run each command and compute each view several times, over the same tables."""
    if "help" in wanted:
        yield _row("help", ("--help",), "offsetstream", "Of the top-level command")
    with tempfile.TemporaryDirectory() as folder:
        store, cells = new_tables(Path(folder)), round(_CELLS * scale)
        write_commits(Path(folder), cells)
        for name in (each for each in _COMMANDS if each in wanted):
            note = f"{cells:,} committed offsets of {cells // 100:,} groups, each committed thirty times"
            yield _row(name, (*_COMMANDS[name], "--tables", folder), "group-7 ", note)
        yield from measured_views(wanted, store)


def _row(name: str, command: tuple[str, ...], expected: str, note: str) -> Result:
    what = " ".join(command).partition(" --tables")[0]
    seconds = [print_seconds(what, _seconds(command, expected)) for _ in range(_ROUNDS)]
    return Result.of(name, Samples.of(what, "s", seconds), note)


def _seconds(command: tuple[str, ...], expected: str) -> float:
    started = time.monotonic()
    done = subprocess.run([*OFFSETSTREAM, *command], check=True, capture_output=True, text=True)
    if expected not in done.stdout:
        raise RuntimeError(f"the command did not print {expected}: {done.stdout}")
    return time.monotonic() - started
