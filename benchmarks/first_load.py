"""Reads a topic of three million commits with Spark, the job, dump, and Kafka's console consumer.

The job's time is from the start of its load until it logs that all partitions are loaded. The time of dump and of the
console consumer is that of the whole process, less the time of a process that reads one record or none.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import decode_query
from benchmarks.broker import empty_broker
from benchmarks.commit_log import Groups, records_in
from benchmarks.console import console_command, process_seconds
from benchmarks.load import load
from benchmarks.log_copies import in_copies, write_copies
from benchmarks.results import Result, Samples
from offsetstream.embedded.jvm import DEFAULT_VERSION, kafka_command
from testkit.processes import OFFSETSTREAM

ROWS = ("decode", "first-load", "state-only", "dump", "files")
_COMMITS, _CELLS, _ROUNDS, _DECODE_ROUNDS = 3_000_000, 32_000, 2, 3
_NO_HISTORY = ("--no-history",)


def measure(wanted: set[str], scale: float) -> Iterator[Result]:
    """Measure all on one broker, in turn."""
    commits, groups = in_copies(_COMMITS * scale), Groups(round(_CELLS * scale))
    with empty_broker() as kafka, tempfile.TemporaryDirectory(prefix="offsetstream-bench-") as name:
        server, folder = kafka.bootstrap_server, Path(name)
        dump_start = process_seconds(_dump(server), folder) if "dump" in wanted else 0.0
        write_copies(kafka, groups, commits)
        if "decode" in wanted:
            yield _decode(server)
        if wanted & {"first-load", "state-only", "dump"}:
            yield from _against_console(wanted, server, folder, groups, commits, dump_start)
        if "files" in wanted:
            yield _files(kafka.folder, folder)


def _files(log: Path, folder: Path) -> Result:
    """Read the log directory of a broker that has stopped writing, by whole processes."""
    segments = ",".join(str(path) for path in sorted(log.rglob("__consumer_offsets-*/*.log")))
    tool = ["--files", segments, "--offsets-decoder"]
    command = kafka_command("kafka-tools", DEFAULT_VERSION, "org.apache.kafka.tools.DumpLogSegments", tool, ("-Xmx1g",))
    ours, theirs = [], []
    for number in range(_ROUNDS):
        ours.append(process_seconds([*OFFSETSTREAM, "load", str(log), "--tables", str(folder / f"{number}")], folder))
        theirs.append(process_seconds(command, folder))
    note = "Whole processes, ours with the start of Spark"
    return Result.ratio("files", Samples.of("load", "s", ours), Samples.of("kafka-dump-log", "s", theirs), note)


def _decode(server: str) -> Result:
    command = [sys.executable, "-m", decode_query.__name__, server, str(_DECODE_ROUNDS)]
    times = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    ours, theirs = (Samples.of(what, "s", times[what]) for what in ("decoded", "not decoded"))
    return Result.ratio("decode", ours, theirs)


def _against_console(
    wanted: set[str], server: str, folder: Path, groups: Groups, commits: int, dump_start: float
) -> Iterator[Result]:
    console_start = process_seconds(console_command(server, 1), folder)
    times: dict[str, list[float]] = {"console": [], "first-load": [], "state-only": [], "dump": []}
    for _ in range(_ROUNDS):
        times["console"].append(process_seconds(console_command(server, records_in(commits)), folder) - console_start)
        if "first-load" in wanted:
            times["first-load"].append(load(server, groups.cells, commits).seconds)
        if "state-only" in wanted:
            times["state-only"].append(load(server, groups.cells, 0, *_NO_HISTORY).seconds)
        if "dump" in wanted:
            times["dump"].append(process_seconds(_dump(server), folder) - dump_start)
    console = Samples.of("console consumer", "s", times.pop("console"))
    notes = {"dump": f"Subtracted from dump: {dump_start:.1f} s to read no record"}
    for name, seconds in times.items():
        if seconds:
            started = f"subtracted from the console consumer: {console_start:.1f} s to read one record"
            note = ", ".join(filter(None, (notes.get(name), started)))
            yield Result.ratio(name, Samples.of("offsetstream", "s", seconds), console, note[0].upper() + note[1:])


def _dump(server: str) -> list[str]:
    return [*OFFSETSTREAM, "dump", "--format", "kafka", "--bootstrap-server", server]
