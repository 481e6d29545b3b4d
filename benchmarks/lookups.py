"""What a person waits for who looks into the tables by hand."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.broker import empty_broker
from benchmarks.commit_log import Groups, write
from benchmarks.load import loaded
from benchmarks.results import Result, Samples
from testkit.command import OFFSETSTREAM

ROWS = ("describe", "list")
_CELLS, _ROUNDS = 100_000, 5


def measure(wanted: set[str], scale: float) -> Iterator[Result]:
    """Call each command several times, as a process of its own."""
    groups = Groups(round(_CELLS * scale))
    commands = {"describe": ("describe", "--group", groups.group(groups.count // 2)), "list": ("list",)}
    with empty_broker() as kafka:
        write(kafka.bootstrap_server, groups.log(groups.cells))
        with loaded(kafka.bootstrap_server, groups.cells, groups.cells) as load:
            for name in wanted & commands.keys():
                seconds = [_seconds(commands[name], load.folder / "tables") for _ in range(_ROUNDS)]
                yield Result.of(name, Samples.of(f"groups {commands[name][0]}", "s", seconds), f"{groups.count} groups")


def _seconds(command: tuple[str, ...], tables: Path) -> float:
    started = time.monotonic()
    done = subprocess.run(
        [*OFFSETSTREAM, "groups", *command, "--tables", str(tables)], check=True, capture_output=True, text=True
    )
    if "bench-" not in done.stdout:
        raise RuntimeError(f"the command showed no group: {done.stdout}")
    return time.monotonic() - started
