"""Large topics: time and memory of their first load, and one whose records are all in one offsets partition."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.broker import empty_broker
from benchmarks.commit_log import Groups, records_in
from benchmarks.console import console_command, process_seconds
from benchmarks.load import Load, load
from benchmarks.log_copies import in_copies, lengthen_log, write_copies
from benchmarks.results import Result, Samples

_LARGER_ROWS = {"memory-growth", "large-load", "executors"}
ROWS = ("memory", "hot-partition", *sorted(_LARGER_ROWS))
_CELLS = 32_000
_SPREAD = 5_000_000  # twice that is large, and four times is larger
_HOT = 17
_GIB = 2**30


def measure(wanted: set[str], scale: float) -> Iterator[Result]:
    """Let one topic grow, and then measure another whose one partition is hot."""
    spread, groups, seconds = in_copies(_SPREAD * scale), Groups(round(_CELLS * scale)), 0.0
    with empty_broker() as kafka:
        server = kafka.bootstrap_server
        write_copies(kafka, groups, spread)
        if "hot-partition" in wanted:
            seconds = load(server, groups.cells, spread).seconds
        if wanted & {"memory", *_LARGER_ROWS}:
            lengthen_log(kafka, 2)
            large, larger = 2 * spread, 4 * spread
            peak = _peak(load(server, groups.cells, large), large) if wanted & {"memory", "memory-growth"} else None
            if peak:
                yield Result.of("memory", peak)
            if wanted & _LARGER_ROWS:
                lengthen_log(kafka, 2)
                yield from _larger(wanted, server, groups, larger, peak)
    if "hot-partition" in wanted:
        hot = Groups(groups.cells, _HOT)
        with empty_broker() as kafka:
            write_copies(kafka, hot, spread)
            in_one = load(kafka.bootstrap_server, hot.cells, spread).seconds
        ours, theirs = Samples.of("one partition", "s", [in_one]), Samples.of("50 partitions", "s", [seconds])
        yield Result.ratio("hot-partition", ours, theirs)


def _larger(
    wanted: set[str], server: str, groups: Groups, commits: int, peak_of_large: Samples | None
) -> Iterator[Result]:
    if wanted & {"memory-growth", "large-load"}:
        loaded = load(server, groups.cells, commits)
        if peak_of_large:
            yield Result.ratio("memory-growth", _peak(loaded, commits), peak_of_large)
        if "large-load" in wanted:
            ours = Samples.of("offsetstream", "s", [loaded.seconds])
            with tempfile.TemporaryDirectory(prefix="offsetstream-bench-") as folder:
                start, whole = (
                    process_seconds(console_command(server, n), Path(folder)) for n in (1, records_in(commits))
                )
            note = f"Taken off the console consumer: {start:.1f} s for one record"
            yield Result.ratio("large-load", ours, Samples.of("console consumer", "s", [whole - start]), note)
    if "executors" in wanted:
        one, two = (_with_executors(server, groups, commits, count) for count in (1, 2))
        yield Result.ratio("executors", one, two)


def _with_executors(server: str, groups: Groups, commits: int, count: int) -> Samples:
    done = load(server, groups.cells, commits, "--master", f"local-cluster[{count},1,1024]")
    return Samples.of(f"executors of one core: {count}", "s", [done.seconds])


def _peak(loaded: Load, commits: int) -> Samples:
    return Samples.of(f"{commits / 1e6:g} million", "GiB", [loaded.peak_bytes / _GIB])
