"""Measures batches of a running job: it processes a log, in batches of one size, into prepared tables.

The log always has more records than one batch may take, so a batch starts as soon as the previous one ends. The time
between two ends is the complete cost of a batch, including Spark's own work.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

from benchmarks.broker import empty_broker
from benchmarks.commit_log import Groups, Record, Records, write
from benchmarks.job import Job
from benchmarks.load import loaded
from benchmarks.results import Samples

WARM_UP, BATCHES = 3, 12
_COMMITS, REBALANCES = 10_000, 20
STEADY = _COMMITS + REBALANCES  # records of a steady batch
_STRIDE = 7919  # spreads the commits of a batch over the whole table
_FEW = 10  # commits of a near-empty batch
_BATCH_LINE = re.compile(r"Batch \d+: ([\d,]+) offset commits, ([\d,]+) group records.*, ([\d.]+) s")


@dataclass(frozen=True)
class Tables:
    """Tables with all cells of some groups, and the broker that they come from."""

    server: str
    folder: Path
    groups: Groups


@contextmanager
def tables_of(groups: Groups, brokers: int = 1) -> Iterator[Tables]:
    """Start brokers, write all cells of the groups to them, and load these with the job."""
    with empty_broker(brokers=brokers) as kafka:
        write(kafka.bootstrap_server, groups.log(groups.cells))
        with loaded(kafka.bootstrap_server, groups.cells, groups.cells) as load:
            yield Tables(kafka.bootstrap_server, load.folder, groups)


@dataclass(frozen=True)
class Run:
    """Batches: `seconds` from end to end, and as the job `logged` them; when each ended; the job's peak memory."""

    seconds: Samples
    logged: Samples
    ends: tuple[float, ...]
    peak_bytes: int

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Run:
        """Combine several runs with the same options."""
        seconds, logged = (
            Samples.of(each[0].what, "s", chain.from_iterable(one.values for one in each))
            for each in ([run.seconds for run in runs], [run.logged for run in runs])
        )
        ends = tuple(chain.from_iterable(run.ends for run in runs))
        return cls(seconds, logged, ends, max(run.peak_bytes for run in runs))


def steady_log(groups: Groups, measured: int = BATCHES, active: int | None = None) -> Records:
    """Yield the records of the warm-up batches, of `measured` batches, and of a last one.

    `active`: only the first so many cells get commits, and only their groups rebalance.
    """
    cells = active or groups.cells
    for number in range(WARM_UP + measured + 1):
        yield from groups.members(number * REBALANCES, REBALANCES, cells)
        yield from groups.commits(number * _COMMITS, _COMMITS, _STRIDE, cells)


def near_empty(tables: Tables, what: str, measured: int = BATCHES) -> Run:
    """Measure batches of a few commits, each in another offsets partition."""
    few = tables.groups.one_per_partition(_FEW)
    log = [record for _ in range(WARM_UP + measured + 1) for cell in few for record in tables.groups.commits(cell, 1)]
    return batches(tables, what, len(few), log)


def batches(tables: Tables, what: str, size: int, log: Iterable[Record], *options: str) -> Run:
    """Write the log, and measure the job in batches of `size` records."""
    write(tables.server, log)
    with Job(tables.server, tables.folder, "--once", "--max-offsets-per-trigger", str(size), *options) as job:
        job.finish()
    ends = logged_batches(job)
    # The first batches find everything cold. The last one has only the rest of the log.
    whole = [(after[0] - before[0], after[2], after[0]) for before, after in pairwise(ends) if after[1] >= 0.9 * size]
    warm = whole[WARM_UP:]
    if not warm:
        raise RuntimeError(f"the job had no batches of {size} records:\n" + "\n".join(line for _, line in job.lines))
    seconds, logged, ended_at = zip(*warm, strict=True)
    return Run(Samples.of(what, "s", seconds), Samples.of("logged", "s", logged), ended_at, job.peak_bytes)


def logged_batches(job: Job) -> list[tuple[float, int, float]]:
    """Return the end, the number of records and the seconds of each batch that the job logged."""
    lines = [(at, _BATCH_LINE.search(line)) for at, line in job.lines]
    return [(at, _records(found), float(found.group(3))) for at, found in lines if found is not None]


def _records(found: re.Match[str]) -> int:
    return sum(int(count.replace(",", "")) for count in found.groups()[:2])
