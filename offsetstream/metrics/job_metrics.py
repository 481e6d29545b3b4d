"""Metrics of the running job: counters of its work, and its position at each scrape."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from offsetstream.metrics.families import job_families
from offsetstream.tables.names import RECORD_TABLES, UNDECODABLE, LoadState
from offsetstream.version import __version__

_BATCH_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


@dataclass(frozen=True)
class ReplayPosition:
    """The position of the replay, in the numbers for metrics and health checks.

    Counts of offsets partitions (`by_state`: by load_state, empty until the topic is known) and records.
    """

    by_state: Mapping[str, int] = field(default_factory=dict)
    leaderless: int = 0
    behind_records: int = 0
    behind_seconds: float = 0.0
    blocked: int = 0
    blocked_records: int = 0
    hanging: int = 0

    @property
    def partitions(self) -> int:
        """Number of offsets partitions of the topic."""
        return sum(self.by_state.values())

    @property
    def owned(self) -> int:
        """Number of loaded offsets partitions: the tables have all their applied records."""
        return self.by_state.get("owned", 0)

    @property
    def is_ready(self) -> bool:
        """Whether all offsets partitions are loaded."""
        return 0 < self.owned == self.partitions


class JobMetrics:
    """The job's metrics in a separate registry. All methods are thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._standing: Callable[[], ReplayPosition] = ReplayPosition
        self._info = self._gauge("offsetstream_info")
        self._records = self._counter("offsetstream_records_total")
        for table in RECORD_TABLES:
            self._records.labels(table)
        self._undecodable = self._counter("offsetstream_undecodable_records_total")
        self._filtered = self._counter("offsetstream_filtered_records_total")
        told = job_families()["offsetstream_batch_seconds"]
        self._seconds = Histogram(told.name, told.help, registry=self.registry, buckets=_BATCH_SECONDS)
        self._last_batch = self._gauge("offsetstream_last_batch_timestamp_seconds")
        self._files = self._gauge("offsetstream_table_files")
        self._bytes = self._gauge("offsetstream_table_bytes")
        self._answers = self._gauge("offsetstream_cluster_answers")
        self._sampled = self._gauge("offsetstream_sampled_timestamp_seconds")
        self.registry.register(_OfStanding(self.standing))
        ProcessCollector(registry=self.registry)

    def belongs_to(self, cluster_id: str) -> None:
        """Set the cluster id."""
        self._info.labels(__version__, cluster_id).set(1)

    def watch(self, standing: Callable[[], ReplayPosition]) -> None:
        """Use this function for the position of the replay from now on."""
        self._standing = standing

    def standing(self) -> ReplayPosition:
        """Return the present position of the replay."""
        return self._standing()

    def batch(self, records: Mapping[str, int], seconds: float, filtered: int = 0) -> None:
        """Count an applied batch: its records by table, its duration in seconds, and its filtered records."""
        for table, count in records.items():
            self._records.labels(table).inc(count)
        self.undecodable(records.get(UNDECODABLE, 0))
        self.filtered(filtered)
        self._seconds.observe(seconds)
        self._last_batch.set_to_current_time()

    def undecodable(self, count: int) -> None:
        """Count records of a batch or a load that could not be decoded."""
        self._undecodable.inc(count)

    def filtered(self, count: int) -> None:
        """Count records of a batch or load that the filters skipped."""
        self._filtered.inc(count)

    def table(self, name: str, files: int, size: int) -> None:
        """Set the number of data files in a table's current version, and their size in bytes."""
        self._files.labels(name).set(files)
        self._bytes.labels(name).set(size)

    def answered(self, *, does_answer: bool) -> None:
        """Set whether the cluster answered the last request."""
        self._answers.set(does_answer)

    def sampled(self) -> None:
        """Set the time of the last sample of end offsets to now."""
        self._sampled.set(time.time())

    def _gauge(self, name: str) -> Gauge:
        family = job_families()[name]
        return Gauge(family.name, family.help, family.labels, registry=self.registry)

    def _counter(self, name: str) -> Counter:
        family = job_families()[name]
        return Counter(family.name, family.help, family.labels, registry=self.registry)


class _OfStanding(Collector):
    """Reads the position of the replay once per scrape."""

    def __init__(self, standing: Callable[[], ReplayPosition]) -> None:
        self._standing = standing

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing, so that registration does not read the position."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        now = self._standing()
        states = gauge("offsetstream_offsets_partitions")
        for state in get_args(LoadState):
            states.add_metric([state.lower()], now.by_state.get(state.lower(), 0))
        yield states
        for name, value in {
            "offsetstream_behind_records": now.behind_records,
            "offsetstream_behind_seconds": now.behind_seconds,
            "offsetstream_leaderless_partitions": now.leaderless,
            "offsetstream_blocked_partitions": now.blocked,
            "offsetstream_blocked_records": now.blocked_records,
            "offsetstream_hanging_transactions": now.hanging,
        }.items():
            family = gauge(name)
            family.add_metric([], value)
            yield family


def gauge(name: str) -> GaugeMetricFamily:
    """Return a gauge of the job without values."""
    family = job_families()[name]
    return GaugeMetricFamily(family.name, family.help, labels=family.labels)
