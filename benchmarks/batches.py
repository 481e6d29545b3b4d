"""Batches of a running job: prepared tables, and the job that processes a log in batches of one size.

The job always has more to do than one batch may take, so one batch starts when the previous one ends. The time from
one end to the next is the complete cost of a batch, including Spark's own work.
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
_STRIDE = 7919  # the commits of a batch are all over the table
_FEW = 10  # commits of a near-empty batch
_BATCH_LINE = re.compile(r"Batch \d+: ([\d,]+) offset commits, ([\d,]+) group records.*, ([\d.]+) s")


@dataclass(frozen=True)
class Tables:
    """Tables with all cells of some groups, and their broker."""

    server: str
    folder: Path
    groups: Groups


@contextmanager
def tables_of(groups: Groups, brokers: int = 1) -> Iterator[Tables]:
    """Start brokers, and have the job load all cells of the groups from them."""
    with empty_broker(brokers=brokers) as kafka:
        write(kafka.bootstrap_server, groups.log(groups.cells))
        with loaded(kafka.bootstrap_server, groups.cells, groups.cells) as load:
            yield Tables(kafka.bootstrap_server, load.folder, groups)


@dataclass(frozen=True)
class Ran:
    """The seconds of batches from end to end, and as the job told them; when each ended; and the peak of its memory."""

    seconds: Samples
    told: Samples
    ends: tuple[float, ...]
    peak_bytes: int

    @classmethod
    def of(cls, runs: Sequence[Ran]) -> Ran:
        """Combine several runs of one way."""
        seconds, told = (
            Samples.of(each[0].what, "s", chain.from_iterable(one.values for one in each))
            for each in ([run.seconds for run in runs], [run.told for run in runs])
        )
        ends = tuple(chain.from_iterable(run.ends for run in runs))
        return cls(seconds, told, ends, max(run.peak_bytes for run in runs))


def steady_log(groups: Groups, measured: int = BATCHES) -> Records:
    """Yield the records of steady batches: warm-up batches, `measured` ones, and a last one."""
    for number in range(WARM_UP + measured + 1):
        yield from groups.members(number * REBALANCES, REBALANCES)
        yield from groups.commits(number * _COMMITS, _COMMITS, _STRIDE)


def near_empty(tables: Tables, what: str, measured: int = BATCHES) -> Ran:
    """Have the job take batches of a few commits, each in another offsets partition."""
    few = tables.groups.one_per_partition(_FEW)
    log = [record for _ in range(WARM_UP + measured + 1) for cell in few for record in tables.groups.commits(cell, 1)]
    return batches(tables, what, len(few), log)


def batches(tables: Tables, what: str, size: int, log: Iterable[Record], *options: str) -> Ran:
    """Have the job take the log in batches of that size."""
    write(tables.server, log)
    with Job(tables.server, tables.folder, "--once", "--max-offsets-per-trigger", str(size), *options) as job:
        job.finish()
    ends = told_by(job)
    # The first ones find everything cold, and the last one what was left over.
    whole = [(after[0] - before[0], after[2], after[0]) for before, after in pairwise(ends) if after[1] >= 0.9 * size]
    warm = whole[WARM_UP:]
    if not warm:
        raise RuntimeError(f"the job had no batches of {size} records:\n" + "\n".join(line for _, line in job.lines))
    seconds, by_itself, at = zip(*warm, strict=True)
    return Ran(Samples.of(what, "s", seconds), Samples.of("told", "s", by_itself), at, job.peak_bytes)


def told_by(job: Job) -> list[tuple[float, int, float]]:
    """Return the number of records and the seconds of each batch that the job logged, by time."""
    told = [(at, _BATCH_LINE.match(line)) for at, line in job.lines]
    return [(at, _records(found), float(found.group(3))) for at, found in told if found is not None]


def _records(found: re.Match[str]) -> int:
    return sum(int(count.replace(",", "")) for count in found.groups()[:2])
