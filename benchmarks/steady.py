"""The running job: how long its batches take, and how soon a commit reaches the tables."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import quantiles

from benchmarks.batches import REBALANCES, STEADY, Tables, batches, near_empty, steady_log, tables_of
from benchmarks.commit_log import Groups
from benchmarks.freshness import delays
from benchmarks.job import Job
from benchmarks.results import Result, Samples

_MANY_CELLS = {"growth": 1_000_000, "growth-10m": 10_000_000}
ROWS = ("steady", "near-empty", "freshness", *_MANY_CELLS)
_CELLS, _ACTIVE = 32_000, 30_000
_BATCHES_OF_MANY = 8
_NEAR_EMPTY = 36  # batches: a dozen would only show the first ten seconds of a job that runs for weeks
_FRESHNESS_SECONDS, _COMMITS_PER_SECOND, _TRIGGER = 30.0, 2000, "1 second"


def measure(wanted: set[str], scale: float) -> Iterator[Result]:
    """Measure on tables with 32,000 cells, and then on larger ones, of which few cells are active."""
    steady: Samples | None = None
    with tables_of(Groups(round(_CELLS * scale))) as tables:
        cells = f"{tables.groups.cells:,} cells"
        if wanted & {"steady", *_MANY_CELLS}:
            run = batches(tables, cells, STEADY, steady_log(tables.groups))
            steady = run.seconds
            note = f"Each also has {REBALANCES} rebalances; without Spark's part {run.logged.text}"
            yield Result.of("steady", steady, note)
        if "near-empty" in wanted:
            run = near_empty(tables, "batch", _NEAR_EMPTY)
            note = f"{_NEAR_EMPTY} batches; without Spark's part {run.logged.text}"
            yield Result.of("near-empty", run.seconds, note)
        if "freshness" in wanted:
            yield _freshness(tables)
    for name, many_cells in _MANY_CELLS.items():
        if steady is not None and name in wanted:
            with tables_of(Groups(round(many_cells * scale))) as tables:
                log = steady_log(tables.groups, _BATCHES_OF_MANY, round(_ACTIVE * scale))
                many = batches(tables, f"{tables.groups.cells:,} cells", STEADY, log)
                yield Result.ratio(name, many.seconds, steady)


def _freshness(tables: Tables) -> Result:
    with Job(tables.server, tables.folder, "--trigger", _TRIGGER) as job:
        job.await_line(" checkpoint ")  # starting it, or continuing from it
        found = delays(
            tables.server,
            tables.folder / "tables" / "committed_offsets",
            tables.groups,
            _COMMITS_PER_SECOND,
            _FRESHNESS_SECONDS,
        )
        job.stop()
    percentiles = Samples.of("commit to visible, 1st to 99th percentile", "s", quantiles(found, n=100))
    return Result("freshness", percentiles.values[-1], (percentiles,), f"{len(found):,} commits, one by one")
