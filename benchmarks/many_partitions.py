"""A cluster whose groups have committed offsets of 20,000 partitions: the cost of sampling and of metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from benchmarks.batches import STEADY, Ran, Tables, batches, steady_log, tables_of
from benchmarks.commit_log import Groups
from benchmarks.goals import TIMES
from benchmarks.results import Result, Samples
from benchmarks.sampler import rounds
from benchmarks.scraping import scraping
from offsetstream.demo.commits import commit_plainly
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.ports import free_ports

_TOPICS = {"sampler": 200, "sampler-2000": 20}  # of them are sampled in a round
ROWS = (*_TOPICS, "steady-sampled", "steady-metered")
_CELLS, _PARTITIONS_EACH, _COMMITTED_AT_ONCE = 32_000, 100, 2000
_MADE_AT_ONCE = 50  # topics: a controller makes no more than 10,000 partitions by one request
_BROKERS = 3  # one would have 20,000 files open, which is more than many machines allow
_TURNS, _IN_A_TURN = 2, 3
_EVERY, _SAMPLED, _UNSAMPLED = "--sample-interval", "every ten seconds", "without sampler"
_METERED = 24  # batches: more than a minute, in half of which it is scraped


# A broker makes the logs of new topics later, about a hundred a second.
_commit_once_there = retry(
    retry=retry_if_exception_type(KafkaException), wait=wait_fixed(1), stop=stop_after_delay(600), reraise=True
)(commit_plainly)


def measure(wanted: set[str], scale: float) -> Iterator[Result]:
    """Measure rounds of the sampler by themselves, and then the job, beside the sampler and beside its metrics."""
    with tables_of(Groups(round(_CELLS * scale)), brokers=_BROKERS) as tables:
        topics = {name: max(1, round(count * scale)) for name, count in _TOPICS.items()}
        names = [f"sampled-{number}" for number in range(max(topics.values()))]
        _commit_to(tables.server, names)
        for name in (each for each in topics if each in wanted):
            yield rounds(name, tables.server, names[: topics[name]], _PARTITIONS_EACH)
        if wanted & {"steady-sampled", "steady-metered"}:
            ran = _in_turns(tables, {_SAMPLED: (_EVERY, "10"), _UNSAMPLED: (_EVERY, "0")})
            note = f"{len(names) * _PARTITIONS_EACH:,} partitions of topics are sampled"
            yield Result.ratio("steady-sampled", ran[_SAMPLED].seconds, ran[_UNSAMPLED].seconds, note)
            if "steady-metered" in wanted:
                yield _metered(tables, ran[_UNSAMPLED].peak_bytes)


def _commit_to(server: str, topics: Sequence[str]) -> None:
    """Make the topics, and have a group commit an offset of each of their partitions."""
    admin = admin_client(server)
    for first in range(0, len(topics), _MADE_AT_ONCE):
        new = [NewTopic(topic, _PARTITIONS_EACH, 1) for topic in topics[first : first + _MADE_AT_ONCE]]
        for made in admin.create_topics(new).values():
            made.result(60)
    parts = [TopicPartition(topic, number, 0) for topic in topics for number in range(_PARTITIONS_EACH)]
    for first in range(0, len(parts), _COMMITTED_AT_ONCE):
        _commit_once_there(server, {"sampled": parts[first : first + _COMMITTED_AT_ONCE]})


def _in_turns(tables: Tables, ways: Mapping[str, Sequence[str]]) -> dict[str, Ran]:
    """Measure each way of options again and again in turn: what grows or slows meanwhile does so for all."""
    runs = defaultdict[str, list[Ran]](list)
    for _ in range(_TURNS):
        for what, options in ways.items():
            log = steady_log(tables.groups, _IN_A_TURN)
            runs[what].append(batches(tables, what, STEADY, log, *options))
    return {what: Ran.of(each) for what, each in runs.items()}


def _metered(tables: Tables, plain_bytes: int) -> Result:
    """Measure a job that is scraped every other half minute; `plain_bytes`: the peak of one without metrics.

    It looks at the ends of all these partitions once a minute: every ten seconds they are all that is to be seen.
    """
    (port,) = free_ports(1)
    metered = (_EVERY, "60", "--metrics-port", str(port), "--group-metrics", "kafka-exporter")
    with scraping(port) as scrapes:
        ran = batches(tables, "batch", STEADY, steady_log(tables.groups, _METERED), *metered)
    by_window = defaultdict[bool | None, list[float]](list)
    for seconds, end in zip(ran.seconds.values, ran.ends, strict=True):
        by_window[scrapes.are_on(end - seconds, end)].append(seconds)
    ours, theirs = Samples.of("scraped", "s", by_window[True]), Samples.of("not scraped", "s", by_window[False])
    note = f"{max(scrapes.series):,} series, scraped each fifteen seconds in every other half minute of the same job"
    return Result.ratio(
        "steady-metered", ours, theirs, f"{note}; peak of memory {ran.peak_bytes / plain_bytes:.2f} {TIMES}"
    )
