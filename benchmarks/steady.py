"""The running job: how long its batches take, and how soon a commit is in the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from statistics import quantiles

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from benchmarks.batches import BATCHES, WARM_UP, Ran, Tables, batches, near_empty, tables_of
from benchmarks.commit_log import Groups, Records
from benchmarks.freshness import delays
from benchmarks.goals import TIMES
from benchmarks.job import Job
from benchmarks.results import Result, Samples
from benchmarks.scraping import scraping
from offsetstream.demo.commits import commit_plainly
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.ports import free_ports

ROWS = ("steady", "near-empty", "freshness", "growth", "steady-sampled", "steady-metered")
_CELLS, _MANY_CELLS = 32_000, 1_000_000
_COMMITS, _GROUP_RECORDS = 10_000, 20  # of a batch
_TURNS = 2
_EVERY, _SAMPLED, _UNSAMPLED = "--sample-interval", "every ten seconds", "without sampler"
_METERED_LOGS = 4  # several minutes, in half of which it is scraped
_STRIDE = 7919  # the commits of a batch are all over the table
_FRESHNESS_SECONDS, _COMMITS_PER_SECOND, _TRIGGER = 45.0, 2000, "1 second"
# Of three brokers: one may have 20,000 files open.
_SAMPLED_TOPICS, _PARTITIONS_EACH, _COMMITTED_AT_ONCE = 200, 100, 2000


# A broker makes the logs of new topics later, about a hundred a second.
_commit_once_there = retry(
    retry=retry_if_exception_type(KafkaException), wait=wait_fixed(1), stop=stop_after_delay(600), reraise=True
)(commit_plainly)


def measure(wanted: set[str], scale: float) -> Iterator[Result]:
    """Measure on tables with few cells, and then on tables with many."""
    steady: Samples | None = None
    with tables_of(Groups(round(_CELLS * scale))) as tables:
        cells = f"{tables.groups.cells:,} cells"
        if wanted & {"steady", "growth"}:
            ran = batches(tables, cells, _COMMITS + _GROUP_RECORDS, _steady(tables.groups))
            steady = ran.seconds
            note = f"Each also has {_GROUP_RECORDS} rebalances; without Spark's part {ran.told.text}"
            yield Result.of("steady", steady, note)
        if "near-empty" in wanted:
            ran = near_empty(tables, "batch")
            yield Result.of("near-empty", ran.seconds, f"Without Spark's part {ran.told.text}")
        if "freshness" in wanted:
            yield _freshness(tables)
    if wanted & {"steady-sampled", "steady-metered"}:
        with tables_of(Groups(round(_CELLS * scale)), brokers=3) as tables:
            yield from _beside(tables, max(1, round(_SAMPLED_TOPICS * scale)), wanted)
    if steady is not None and "growth" in wanted:
        with tables_of(Groups(round(_MANY_CELLS * scale))) as tables:
            size, log = _COMMITS + _GROUP_RECORDS, _steady(tables.groups)
            many = batches(tables, f"{tables.groups.cells:,} cells", size, log).seconds
            yield Result.ratio("growth", many, steady)


def _steady(groups: Groups) -> Records:
    for number in range(WARM_UP + BATCHES + 1):
        yield from groups.members(number * _GROUP_RECORDS, _GROUP_RECORDS)
        yield from groups.commits(number * _COMMITS, _COMMITS, _STRIDE)


def _beside(tables: Tables, topics: int, wanted: set[str]) -> Iterator[Result]:
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


def _metered(tables: Tables) -> Result:
    """Measure a job that is scraped every other minute, and the memory of one that is not.

    It looks at the ends of all these partitions once a minute: every ten seconds they are all that is to be seen.
    """
    (port,), size = free_ports(1), _COMMITS + _GROUP_RECORDS
    logs = [chain.from_iterable(_steady(tables.groups) for _ in range(_METERED_LOGS)) for _ in range(2)]
    plain = batches(tables, "without metrics", size, logs[0], _EVERY, "60")
    metered = (_EVERY, "60", "--metrics-port", str(port), "--group-metrics", "kafka-exporter")
    with scraping(port) as scrapes:
        ran = batches(tables, "batch", size, logs[1], *metered)
    by_window = defaultdict[bool | None, list[float]](list)
    for seconds, end in zip(ran.seconds.values, ran.ends, strict=True):
        by_window[scrapes.are_on(end - seconds, end)].append(seconds)
    ours, theirs = Samples.of("scraped", "s", by_window[True]), Samples.of("not scraped", "s", by_window[False])
    note = f"{max(scrapes.series):,} series, scraped each fifteen seconds in every other minute of the same job"
    return Result.ratio(
        "steady-metered", ours, theirs, f"{note}; peak of memory {ran.peak_bytes / plain.peak_bytes:.2f} {TIMES}"
    )


def _in_turns(tables: Tables, ways: Mapping[str, Sequence[str]]) -> dict[str, Ran]:
    """Measure each way of options again and again in turn: what grows or slows meanwhile does so for all."""
    size, runs = _COMMITS + _GROUP_RECORDS, defaultdict[str, list[Ran]](list)
    for _ in range(_TURNS):
        for what, options in ways.items():
            runs[what].append(batches(tables, what, size, _steady(tables.groups), *options))
    return {what: Ran.of(each) for what, each in runs.items()}


def _freshness(tables: Tables) -> Result:
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
