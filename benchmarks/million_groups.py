"""A million groups with one committed offset each: first load, a batch, and commands that list all of them."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.batches import Tables, near_empty
from benchmarks.broker import empty_broker
from benchmarks.commit_log import Groups, write
from benchmarks.load import loaded
from benchmarks.process_tree import PeakMemory
from benchmarks.results import Result, Samples, print_seconds
from testkit.processes import OFFSETSTREAM

_COMMANDS = {
    "million-list": ("groups", "list", "--output", "csv"),
    "million-describe": ("groups", "describe", "--all-groups"),
}
ROWS = ("million-load", "million-batch", *_COMMANDS)
_GROUPS = 1_000_000


def measure(wanted: set[str], scale: float) -> Iterator[Result]:
    """Load the groups once, and measure all else on the loaded tables."""
    groups = Groups(round(_GROUPS * scale), each=1)
    with empty_broker() as kafka:
        write(kafka.bootstrap_server, groups.log(groups.cells))
        with loaded(kafka.bootstrap_server, groups.cells, groups.cells) as load:
            note = f"Peak memory {load.peak_bytes / 2**30:.2f} GiB"
            yield Result.of("million-load", Samples.of("first load", "s", [load.seconds]), note)
            for name in wanted & _COMMANDS.keys():
                yield _command(name, load.folder / "tables", groups.count)
            if "million-batch" in wanted:
                run = near_empty(Tables(kafka.bootstrap_server, load.folder, groups), "batch")
                yield Result.of("million-batch", run.seconds, f"Without Spark's part {run.logged.text}")


def _command(name: str, tables: Path, groups: int) -> Result:
    command = [*OFFSETSTREAM, *_COMMANDS[name], "--tables", str(tables)]
    with tempfile.TemporaryFile() as answer:
        started = time.monotonic()
        with subprocess.Popen(command, stdout=answer, stderr=subprocess.DEVNULL) as process:
            memory = PeakMemory(process.pid)
            memory.start()
            exit_code = process.wait()
            memory.stop()
        seconds = print_seconds(name, time.monotonic() - started)
        answer.seek(0)
        printed = sum(b"bench-" in line for line in answer)
    if exit_code or printed < groups:
        raise RuntimeError(f"{' '.join(command)}: exit code {exit_code}, {printed} of {groups} groups")
    what = " ".join(_COMMANDS[name])
    return Result.of(name, Samples.of(what, "s", [seconds]), f"Peak memory {memory.peak_bytes >> 20} MiB")
