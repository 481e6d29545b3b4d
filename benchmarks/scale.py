"""First loads of large topics: time, memory, executors, and a topic with all records in one offsets partition."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.broker import empty_broker
from benchmarks.commit_log import Groups, records_in, write
from benchmarks.console import console_command, process_seconds
from benchmarks.load import Load, load
from benchmarks.log_copies import in_copies, lengthen_log, write_copies
from benchmarks.results import Result, Samples

_OF_LARGE, _OF_LARGER = {"memory", "memory-growth", "hot-partition"}, {"memory-growth", "large-load"}
ROWS = ("memory", "memory-growth", "large-load", "executors", "hot-partition", "hot-cells", "many-cells")
_CELLS = 32_000
_LARGE = 10_000_000  # the larger topic has twice as many
_HOT = 17
_HOT_CELLS = 5_000_000
_MANY_CELLS = 10_000_000
_GIB = 2**30


def measure(wanted: set[str], scale: float) -> Iterator[Result]:
    """Measure a topic that grows from 5 to 20 million records, then topics with a hot partition."""
    if wanted & (set(ROWS) - {"hot-cells", "many-cells"}):
        yield from _growing(wanted, scale)
    if "hot-cells" in wanted:
        done = _of_cells(round(_HOT_CELLS * scale), _HOT)
        yield Result.of("hot-cells", _peak(done, _HOT_CELLS), f"In {done.seconds:.1f} s")
    if "many-cells" in wanted:
        done = _of_cells(round(_MANY_CELLS * scale), None)
        note = f"Peak memory {done.peak_bytes / _GIB:.2f} GiB"
        yield Result.of("many-cells", Samples.of(f"{_MANY_CELLS / 1e6:g} million", "s", [done.seconds]), note)


def _growing(wanted: set[str], scale: float) -> Iterator[Result]:
    half, groups = in_copies(_LARGE * scale / 2), Groups(round(_CELLS * scale))
    commits = 2 * half
    with empty_broker() as kafka:
        server = kafka.bootstrap_server
        write_copies(kafka, groups, half)
        if "executors" in wanted:
            one, two = (_with_executors(server, groups, half, count) for count in (1, 2))
            yield Result.ratio("executors", one, two)
        if wanted & (_OF_LARGE | _OF_LARGER):
            lengthen_log(kafka, 2)
        large = load(server, groups.cells, commits) if wanted & _OF_LARGE else None
        if large and "memory" in wanted:
            yield Result.of("memory", _peak(large, commits))
        if wanted & _OF_LARGER:
            lengthen_log(kafka, 2)
            larger = load(server, groups.cells, 2 * commits)
            if large and "memory-growth" in wanted:
                yield Result.ratio("memory-growth", _peak(larger, 2 * commits), _peak(large, commits))
            if "large-load" in wanted:
                yield _against_console(server, 2 * commits, larger)
    if large and "hot-partition" in wanted:
        yield _hot(commits, groups.cells, large)


def _against_console(server: str, commits: int, loaded: Load) -> Result:
    ours = Samples.of("offsetstream", "s", [loaded.seconds])
    with tempfile.TemporaryDirectory(prefix="offsetstream-bench-") as folder:
        start, whole = (process_seconds(console_command(server, n), Path(folder)) for n in (1, records_in(commits)))
    note = f"Subtracted from the console consumer: {start:.1f} s to read one record"
    return Result.ratio("large-load", ours, Samples.of("console consumer", "s", [whole - start]), note)


def _hot(commits: int, cells: int, spread: Load) -> Result:
    groups = Groups(cells, _HOT)
    with empty_broker() as kafka:
        write_copies(kafka, groups, commits)
        in_one = load(kafka.bootstrap_server, cells, commits)
    ours, theirs = (
        Samples.of(what, "s", [each.seconds]) for what, each in (("one partition", in_one), ("50 partitions", spread))
    )
    return Result.ratio("hot-partition", ours, theirs)


def _of_cells(cells: int, partition: int | None) -> Load:
    """Load cells that were committed once, in one offsets partition or in all."""
    groups = Groups(cells, partition)
    with empty_broker() as kafka:
        write(kafka.bootstrap_server, groups.log(cells))
        return load(kafka.bootstrap_server, cells, cells)


def _with_executors(server: str, groups: Groups, commits: int, count: int) -> Samples:
    done = load(server, groups.cells, commits, "--master", f"local-cluster[{count},1,1024]", pinned=True)
    return Samples.of(f"executors of one core: {count}", "s", [done.seconds])


def _peak(loaded: Load, commits: int) -> Samples:
    return Samples.of(f"{commits / 1e6:g} million", "GiB", [loaded.peak_bytes / _GIB])
