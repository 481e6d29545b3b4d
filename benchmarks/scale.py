"""Large topics: the memory of their first load, and one whose records are all in one offsets partition."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.broker import empty_broker
from benchmarks.commit_log import Groups, write
from benchmarks.load import load
from benchmarks.results import Result, Samples

ROWS = ("memory", "memory-growth", "hot-partition")
_CELLS = 32_000
_SPREAD, _LARGE, _LARGER = 5_000_000, 10_000_000, 20_000_000
_HOT = 17
_GIB = 2**30


def measure(wanted: set[str], scale: float) -> Iterator[Result]:
    """Let one topic grow, and then measure another whose one partition is hot."""
    spread, large, larger = (round(commits * scale) for commits in (_SPREAD, _LARGE, _LARGER))
    groups, seconds = Groups(round(_CELLS * scale)), 0.0
    with empty_broker() as kafka:
        server = kafka.bootstrap_server
        write(server, groups.log(spread))
        if "hot-partition" in wanted:
            seconds = load(server, groups.cells, spread).seconds
        if wanted & {"memory", "memory-growth"}:
            write(server, groups.log(large - spread, first=spread))
            peak = _peak(server, groups, large)
            yield Result.of("memory", peak)
            if "memory-growth" in wanted:
                write(server, groups.log(larger - large, first=large))
                yield Result.ratio("memory-growth", _peak(server, groups, larger), peak)
    if "hot-partition" in wanted:
        hot = Groups(groups.cells, _HOT)
        with empty_broker() as kafka:
            write(kafka.bootstrap_server, hot.log(spread))
            in_one = load(kafka.bootstrap_server, hot.cells, spread).seconds
        ours, theirs = Samples.of("one partition", "s", [in_one]), Samples.of("50 partitions", "s", [seconds])
        yield Result.ratio("hot-partition", ours, theirs)


def _peak(server: str, groups: Groups, commits: int) -> Samples:
    peak = load(server, groups.cells, commits).peak_bytes / _GIB
    return Samples.of(f"{commits / 1e6:g} million", "GiB", [peak])
