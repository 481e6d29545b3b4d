"""The cost of sampling and of metrics when groups have committed offsets of 20,000 partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from benchmarks.batches import STEADY, Run, Tables, batches, steady_log, tables_of
from benchmarks.commit_log import Groups
from benchmarks.goals import TIMES
from benchmarks.results import Result, Samples
from benchmarks.sampler import rounds
from benchmarks.scraping import scraping
from offsetstream.demo.topics import commit_plainly
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.ports import free_ports

_TOPICS = {"sampler": 200, "sampler-2000": 20}  # sampled in a round
ROWS = (*_TOPICS, "steady-sampled", "steady-metered")
_CELLS, _PARTITIONS_EACH, _COMMITTED_AT_ONCE = 32_000, 100, 2000
_MADE_AT_ONCE = 50  # topics: a controller creates at most 10,000 partitions in one request
_BROKERS = 3  # a single broker would have 20,000 files open: more than many machines allow
_TURNS, _IN_A_TURN = 2, 3
_EVERY, _SAMPLED, _UNSAMPLED = "--sample-interval", "every ten seconds", "without sampler"
_METERED = 24  # batches: they take more than a minute, half of it with scrapes


# A broker creates the logs of new topics with a delay, about a hundred a second.
_commit_once_there = retry(
    retry=retry_if_exception_type(KafkaException), wait=wait_fixed(1), stop=stop_after_delay(600), reraise=True
)(commit_plainly)


def measure(wanted: set[str], scale: float) -> Iterator[Result]:
    """Measure rounds of the sampler alone, then the job with sampler, then the job with metrics."""
    with tables_of(Groups(round(_CELLS * scale)), brokers=_BROKERS) as tables:
        topics = {name: max(1, round(count * scale)) for name, count in _TOPICS.items()}
        names = [f"sampled-{number}" for number in range(max(topics.values()))]
        _commit_to(tables.server, names)
        for name in (each for each in topics if each in wanted):
            yield rounds(name, tables.server, names[: topics[name]], _PARTITIONS_EACH)
        if wanted & {"steady-sampled", "steady-metered"}:
            runs = _in_turns(tables, {_SAMPLED: (_EVERY, "10"), _UNSAMPLED: (_EVERY, "0")})
            note = f"{len(names) * _PARTITIONS_EACH:,} partitions of topics are sampled"
            yield Result.ratio("steady-sampled", runs[_SAMPLED].seconds, runs[_UNSAMPLED].seconds, note)
            if "steady-metered" in wanted:
                yield _metered(tables, runs[_UNSAMPLED].peak_bytes)


def _commit_to(server: str, topics: Sequence[str]) -> None:
    """Create the topics, and commit an offset of each of their partitions for one group."""
    admin = admin_client(server)
    for first in range(0, len(topics), _MADE_AT_ONCE):
        new = [NewTopic(topic, _PARTITIONS_EACH, 1) for topic in topics[first : first + _MADE_AT_ONCE]]
        for made in admin.create_topics(new).values():
            made.result(60)
    parts = [TopicPartition(topic, number, 0) for topic in topics for number in range(_PARTITIONS_EACH)]
    for first in range(0, len(parts), _COMMITTED_AT_ONCE):
        _commit_once_there(server, {"sampled": parts[first : first + _COMMITTED_AT_ONCE]})


def _in_turns(tables: Tables, ways: Mapping[str, Sequence[str]]) -> dict[str, Run]:
    """Measure the sets of options several times in turn, so that growth and slowdowns affect all of them."""
    runs = defaultdict[str, list[Run]](list)
    for _ in range(_TURNS):
        for what, options in ways.items():
            log = steady_log(tables.groups, _IN_A_TURN)
            runs[what].append(batches(tables, what, STEADY, log, *options))
    return {what: Run.of(each) for what, each in runs.items()}


def _metered(tables: Tables, plain_bytes: int) -> Result:
    """Measure a job that is scraped every other half minute. `plain_bytes`: the peak memory of a job without metrics.

    The job samples once a minute: with the default of ten seconds, the cost of the sampler would hide that of metrics.
    """
    (port,) = free_ports(1)
    metered = (_EVERY, "60", "--metrics-port", str(port), "--group-metrics", "kafka-exporter")
    with scraping(port) as scrapes:
        run = batches(tables, "batch", STEADY, steady_log(tables.groups, _METERED), *metered)
    by_window = defaultdict[bool | None, list[float]](list)
    for seconds, end in zip(run.seconds.values, run.ends, strict=True):
        by_window[scrapes.are_on(end - seconds, end)].append(seconds)
    ours, theirs = Samples.of("scraped", "s", by_window[True]), Samples.of("not scraped", "s", by_window[False])
    note = f"{max(scrapes.series):,} series, scraped every fifteen seconds in every other half minute of the same job"
    return Result.ratio(
        "steady-metered", ours, theirs, f"{note}; peak memory {run.peak_bytes / plain_bytes:.2f} {TIMES}"
    )
