"""The running job: how long its batches take, and how soon a commit is in the tables.

Batches are those of a job that has more to do than one batch may take, so that one begins when the one before ends: the
time from one end to the next is all that a batch costs, Spark's own work included.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from statistics import quantiles

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from benchmarks.broker import empty_broker
from benchmarks.commit_log import Groups, Records, write
from benchmarks.freshness import delays
from benchmarks.goals import TIMES
from benchmarks.job import Job
from benchmarks.load import loaded
from benchmarks.results import Result, Samples
from benchmarks.scraping import scraping
from offsetstream.demo.commits import commit_plainly
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.ports import free_ports

ROWS = ("steady", "near-empty", "freshness", "growth", "steady-sampled", "steady-metered")
_CELLS, _MANY_CELLS = 32_000, 1_000_000
_COMMITS, _GROUP_RECORDS, _FEW = 10_000, 20, 10  # of a batch
_WARM_UP, _BATCHES, _TURNS = 3, 12, 2
_EVERY, _SAMPLED, _UNSAMPLED = "--sample-interval", "every ten seconds", "without sampler"
_METERED_LOGS = 4  # several minutes, in half of which it is scraped
_STRIDE = 7919  # the commits of a batch are all over the table
_FRESHNESS_SECONDS, _COMMITS_PER_SECOND, _TRIGGER = 45.0, 2000, "1 second"
# Of three brokers: one may have 20,000 files open.
_SAMPLED_TOPICS, _PARTITIONS_EACH, _COMMITTED_AT_ONCE = 200, 100, 2000
_BATCH_LINE = re.compile(r"Batch \d+: ([\d,]+) offset commits, ([\d,]+) group records.*, ([\d.]+) s")


# A broker makes the logs of new topics later, about a hundred a second.
_commit_once_there = retry(
    retry=retry_if_exception_type(KafkaException), wait=wait_fixed(1), stop=stop_after_delay(600), reraise=True
)(commit_plainly)


@dataclass(frozen=True)
class _Tables:
    """Tables with all cells of some groups, and the broker that they are from."""

    server: str
    folder: Path
    groups: Groups


def measure(wanted: set[str], scale: float) -> Iterator[Result]:
    """Measure on tables with few cells, and then on tables with many."""
    steady: Samples | None = None
    with _tables(Groups(round(_CELLS * scale))) as tables:
        cells = f"{tables.groups.cells:,} cells"
        if wanted & {"steady", "growth"}:
            ran = _batches(tables, cells, _COMMITS + _GROUP_RECORDS, _steady(tables.groups))
            steady = ran.seconds
            note = f"Each also has {_GROUP_RECORDS} rebalances; without Spark's part {ran.told.text}"
            yield Result.of("steady", steady, note)
        if "near-empty" in wanted:
            few = tables.groups.one_per_partition(_FEW)
            ran = _batches(tables, "batch", len(few), _near_empty(tables.groups, few))
            yield Result.of("near-empty", ran.seconds, f"Without Spark's part {ran.told.text}")
        if "freshness" in wanted:
            yield _freshness(tables)
    if wanted & {"steady-sampled", "steady-metered"}:
        with _tables(Groups(round(_CELLS * scale)), brokers=3) as tables:
            yield from _beside(tables, max(1, round(_SAMPLED_TOPICS * scale)), wanted)
    if steady is not None and "growth" in wanted:
        with _tables(Groups(round(_MANY_CELLS * scale))) as tables:
            size, log = _COMMITS + _GROUP_RECORDS, _steady(tables.groups)
            many = _batches(tables, f"{tables.groups.cells:,} cells", size, log).seconds
            yield Result.ratio("growth", many, steady)


@contextmanager
def _tables(groups: Groups, brokers: int = 1) -> Iterator[_Tables]:
    with empty_broker(brokers=brokers) as kafka:
        write(kafka.bootstrap_server, groups.log(groups.cells))
        with loaded(kafka.bootstrap_server, groups.cells, groups.cells) as load:
            yield _Tables(kafka.bootstrap_server, load.folder, groups)


def _steady(groups: Groups) -> Records:
    for number in range(_WARM_UP + _BATCHES + 1):
        yield from groups.members(number * _GROUP_RECORDS, _GROUP_RECORDS)
        yield from groups.commits(number * _COMMITS, _COMMITS, _STRIDE)


def _near_empty(groups: Groups, cells: Sequence[int]) -> Records:
    for _ in range(_WARM_UP + _BATCHES + 1):
        for cell in cells:
            yield from groups.commits(cell, 1)


def _beside(tables: _Tables, topics: int, wanted: set[str]) -> Iterator[Result]:
    """Measure beside the sampler, and without it, once a group has committed offsets of that many topics; then beside
    the metrics of all these cells, which somebody scrapes now and then.
    """
    admin, names = admin_client(tables.server), [f"sampled-{number}" for number in range(topics)]
    for topic in names:
        admin.create_topics([NewTopic(topic, _PARTITIONS_EACH, 1)])[topic].result(60)
    parts = [TopicPartition(topic, number, 0) for topic in names for number in range(_PARTITIONS_EACH)]
    for first in range(0, len(parts), _COMMITTED_AT_ONCE):
        _commit_once_there(tables.server, {"sampled": parts[first : first + _COMMITTED_AT_ONCE]})
    if "steady-sampled" in wanted:
        ran = _in_turns(tables, {_SAMPLED: (_EVERY, "10"), _UNSAMPLED: (_EVERY, "0")})
        note = f"{len(parts):,} partitions of topics are sampled"
        yield Result.ratio("steady-sampled", ran[_SAMPLED].seconds, ran[_UNSAMPLED].seconds, note)
    if "steady-metered" in wanted:
        yield _metered(tables)


def _metered(tables: _Tables) -> Result:
    """Measure a job that is scraped every other minute, and the memory of one that is not.

    It looks at the ends of all these partitions once a minute: every ten seconds they are all that is to be seen.
    """
    (port,), size = free_ports(1), _COMMITS + _GROUP_RECORDS
    logs = [chain.from_iterable(_steady(tables.groups) for _ in range(_METERED_LOGS)) for _ in range(2)]
    plain = _batches(tables, "without metrics", size, logs[0], _EVERY, "60")
    metered = (_EVERY, "60", "--metrics-port", str(port), "--group-metrics", "kafka-exporter")
    with scraping(port) as scrapes:
        ran = _batches(tables, "batch", size, logs[1], *metered)
    by_window = defaultdict[bool | None, list[float]](list)
    for seconds, end in zip(ran.seconds.values, ran.ends, strict=True):
        by_window[scrapes.are_on(end - seconds, end)].append(seconds)
    ours, theirs = Samples.of("scraped", "s", by_window[True]), Samples.of("not scraped", "s", by_window[False])
    note = f"{max(scrapes.series):,} series, scraped each fifteen seconds in every other minute of the same job"
    return Result.ratio(
        "steady-metered", ours, theirs, f"{note}; peak of memory {ran.peak_bytes / plain.peak_bytes:.2f} {TIMES}"
    )


@dataclass(frozen=True)
class _Ran:
    """The seconds of batches from end to end, and as the job told them; when each ended; and the peak of its memory."""

    seconds: Samples
    told: Samples
    ends: tuple[float, ...]
    peak_bytes: int

    @classmethod
    def of(cls, runs: Sequence[_Ran]) -> _Ran:
        """Return several runs of one way as one."""
        seconds, told = (
            Samples.of(each[0].what, "s", chain.from_iterable(one.values for one in each))
            for each in ([run.seconds for run in runs], [run.told for run in runs])
        )
        ends = tuple(chain.from_iterable(run.ends for run in runs))
        return cls(seconds, told, ends, max(run.peak_bytes for run in runs))


def _in_turns(tables: _Tables, ways: Mapping[str, Sequence[str]]) -> dict[str, _Ran]:
    """Measure each way of options again and again in turn: what grows or slows meanwhile does so for all."""
    size, runs = _COMMITS + _GROUP_RECORDS, defaultdict[str, list[_Ran]](list)
    for _ in range(_TURNS):
        for what, options in ways.items():
            runs[what].append(_batches(tables, what, size, _steady(tables.groups), *options))
    return {what: _Ran.of(each) for what, each in runs.items()}


def _batches(tables: _Tables, what: str, size: int, log: Records, *options: str) -> _Ran:
    """Have the job take the log in batches of that size."""
    write(tables.server, log)
    with Job(tables.server, tables.folder, "--once", "--max-offsets-per-trigger", str(size), *options) as job:
        job.finish()
    told = [(at, _BATCH_LINE.match(line)) for at, line in job.lines]
    ends = [(at, _records(found), float(found.group(3))) for at, found in told if found is not None]
    # The first ones find everything cold, and the last one what was left over.
    whole = [(after[0] - before[0], after[2], after[0]) for before, after in pairwise(ends) if after[1] >= 0.9 * size]
    warm = whole[_WARM_UP:]
    if not warm:
        raise RuntimeError(f"the job had no batches of {size} records:\n" + "\n".join(line for _, line in job.lines))
    seconds, by_itself, at = zip(*warm, strict=True)
    return _Ran(Samples.of(what, "s", seconds), Samples.of("told", "s", by_itself), at, job.peak_bytes)


def _records(found: re.Match[str]) -> int:
    return sum(int(count.replace(",", "")) for count in found.groups()[:2])


def _freshness(tables: _Tables) -> Result:
    with Job(tables.server, tables.folder, "--trigger", _TRIGGER) as job:
        job.await_line("Going on with checkpoint")
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
