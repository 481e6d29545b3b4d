"""Much to do: commits that waited while the job stood still, and more commits each second than small batches can take.

The job that stands still is stopped by a signal and continued by another, so it is warm, and its lease is its own. The
time is from the continuation until the job logs the last batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import quantiles

from benchmarks.batches import STEADY, Tables, logged_batches, tables_of
from benchmarks.commit_log import Groups, write
from benchmarks.freshness import delays
from benchmarks.job import Job
from benchmarks.results import Result, Samples, print_seconds

_WAITING = {"waiting": (500_000, 3), "waiting-longer": (2_000_000, 2)}  # commits, rounds
ROWS = (*_WAITING, "sustained")
_CELLS = 250_000
_WARM_UP = (STEADY, 200_000, 200_000)
_OFFERED, _SECONDS, _TRIGGER_SECONDS = 105_000, 600.0, 10


def measure(wanted: set[str], scale: float) -> Iterator[Result]:
    """Measure on tables with 250,000 cells, of which all are active."""
    with tables_of(Groups(round(_CELLS * scale))) as tables:
        if wanted & _WAITING.keys():
            yield from _waiting(tables, {name: size for name, size in _WAITING.items() if name in wanted}, scale)
        if "sustained" in wanted:
            yield _sustained(tables, scale)


def _waiting(tables: Tables, sizes: dict[str, tuple[int, int]], scale: float) -> Iterator[Result]:
    with Job(tables.server, tables.folder, "--trigger", "1 second") as job:
        job.await_line(" checkpoint ")  # starting it, or continuing from it
        for size in _WARM_UP:
            _continued(job, tables, size)
        for name, (size, rounds) in sizes.items():
            found = [_continued(job, tables, round(size * scale)) for _ in range(rounds)]
            note = (
                f"In {_text(sorted({batches for _, batches in found}))}; peak memory {job.peak_bytes / 2**30:.2f} GiB"
            )
            yield Result.of(name, Samples.of(f"{size:,} commits", "s", (seconds for seconds, _ in found)), note)
        job.stop()


def _text(counts: list[int]) -> str:
    return f"{' or '.join(map(str, counts))} {'batch' if counts == [1] else 'batches'}"


def _continued(job: Job, tables: Tables, commits: int) -> tuple[float, int]:
    """Return the seconds from the continuation until these commits were applied, and in how many batches."""
    before = logged_batches(job)
    job.pause()
    write(tables.server, tables.groups.commits(sum(records for _, records, _ in before), commits))
    started = time.time()
    job.go_on()
    job.await_that(lambda: sum(records for _, records, _ in logged_batches(job)[len(before) :]) >= commits)
    new = logged_batches(job)[len(before) :]
    return print_seconds(f"{commits:,} waiting", new[-1][0] - started), len(new)


def _sustained(tables: Tables, scale: float) -> Result:
    """Offer more than the goal for ten minutes. The figure is what the job applied a second until the last commit."""
    offered, seconds = round(_OFFERED * scale), _SECONDS * scale
    with Job(tables.server, tables.folder, "--trigger", f"{_TRIGGER_SECONDS} seconds") as job:
        job.await_line(" checkpoint ")  # starting it, or continuing from it
        found = delays(
            tables.server, tables.folder / "tables" / "committed_offsets", tables.groups, offered, seconds, every=1.0
        )
        job.stop()
    ends = logged_batches(job)
    whole = [each for each in ends if each[1] >= offered]  # without those of the warm-up
    rate = sum(records for _, records, _ in whole[1:]) / (whole[-1][0] - whole[0][0])
    percentiles = Samples.of("commit to visible, 1st to 99th percentile", "s", quantiles(found, n=100))
    took = Samples.of("a batch", "s", (seconds for _, _, seconds in whole))
    applied = Samples.of("applied a second", "commits", [rate])
    note = f"{offered:,} a second offered; peak memory {job.peak_bytes / 2**30:.2f} GiB"
    return Result("sustained", rate, (applied, took, percentiles), note)
