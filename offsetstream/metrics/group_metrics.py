"""Metrics of coordinators and groups: queries (`families/`) over the tables, run at intervals, not at each scrape."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import duckdb
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from offsetstream.errors import TablesError, UsageError, first_line
from offsetstream.metrics.families import COORDINATORS, GROUPS, Queried, queried_families
from offsetstream.metrics.job_metrics import gauge
from offsetstream.tables.store import Store
from offsetstream.views.reader import ViewReader

_UNASKED_SECONDS = 300.0  # after the last scrape: nobody wants to know any more
_OLD_SECONDS, _OLD_READINGS = 120.0, 6  # beyond the longer of the two, what was read is not shown any more
_OWN = (
    "offsetstream_group_metrics_timestamp_seconds",
    "offsetstream_group_metrics_seconds",
    "offsetstream_group_series_dropped",
)
# What the queries of groups read. The dot is also a line's end, which a group's name may have.
_SHOWN = {
    "shown_groups": """
      SELECT g.*, p.coordinator_id FROM groups AS g JOIN offsets_partitions AS p USING (offsets_partition)
      ANTI JOIN (FROM freshness WHERE is_stale) USING (offsets_partition)
      WHERE g.in_coordinator_partition AND regexp_full_match(g.group_id, getvariable('groups'), 's')""",
    "shown_lag": """
      FROM lag WHERE NOT is_stale AND regexp_full_match(group_id, getvariable('groups'), 's')
        AND regexp_full_match(topic, getvariable('topics'), 's')""",
    "shown_ends": """
      FROM partition_ends SEMI JOIN shown_lag USING (topic, partition)
      WHERE error IS NULL AND high_watermark IS NOT NULL""",
}
_TABLES = ("groups", "committed_offsets", "offsets_partitions")


@dataclass(frozen=True)
class Shown:
    """Which group metrics to show.

    `names` is the file of `families/` with their names (None: no group metrics). `groups` and `topics` are regular
    expressions (RE2) that must match the complete name. There are at most `max_series` series of groups.
    """

    names: str | None
    groups: str = ".*"
    topics: str = ".*"
    max_series: int = 100_000

    def require_patterns(self) -> None:
        """Raise UsageError for an invalid regular expression."""
        for option, pattern in (("metrics-groups", self.groups), ("metrics-topics", self.topics)):
            try:
                duckdb.execute("SELECT regexp_full_match('', ?)", [pattern]).fetchall()
            except duckdb.Error as error:
                raise UsageError(
                    f"the setting {option}: {pattern!r} is not a regular expression: {first_line(error)}"
                ) from error


class GroupMetrics(Collector):
    """Metrics from the last read of the tables. A thread reads them every `seconds`, as long as someone scrapes.

    Metrics that are too old are not shown, so that a pause does not look like the present. The time
    of the last read is always shown.
    """

    def __init__(self, shown: Shown, seconds: float, say: Callable[[str], None]) -> None:
        self._shown, self._seconds, self._say = shown, seconds, say
        self._families: list[GaugeMetricFamily] = []
        self._own: list[GaugeMetricFamily] = []
        self._asked_at = self._read_at = time.monotonic()
        self._ended, self._wanted = threading.Event(), threading.Event()
        self._is_failing = False

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing: there are no metrics before the first read."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics of the last read. If they are too old, yield only its time, and trigger a new read."""
        yield from self._own
        self._asked_at = time.monotonic()
        if self._asked_at - self._read_at > max(_OLD_SECONDS, _OLD_READINGS * self._seconds):
            self._wanted.set()
        else:
            yield from self._families

    def start(self, tables: Store) -> None:
        """Start the thread that reads the tables."""
        threading.Thread(target=self._run, args=(tables,), name="group metrics", daemon=True).start()

    def end(self) -> None:
        """Stop reading."""
        self._ended.set()
        self._wanted.set()

    def read(self, tables: Store) -> None:
        """Read the tables now. Raises TablesError."""
        began, at = time.monotonic(), time.time()
        found, dropped = _families(ViewReader(tables), self._shown)
        own = [gauge(name) for name in _OWN]
        for family, value in zip(own, (at, time.monotonic() - began, dropped), strict=True):
            family.add_metric([], value)
        self._families, self._own, self._read_at = found, own, began

    def _run(self, tables: Store) -> None:
        while not self._ended.is_set():
            if time.monotonic() - self._asked_at < _UNASKED_SECONDS:
                self.try_to_read(tables)
            self._wanted.wait(self._seconds)
            self._wanted.clear()

    def try_to_read(self, tables: Store) -> None:
        """Read the tables now. A failure is logged once, and the last metrics stay until they are too old."""
        try:
            self.read(tables)
        except TablesError as error:
            if not self._is_failing:
                self._say(f"The metrics of groups stay as they were for now: {first_line(error)}")
            self._is_failing = True
            return
        if self._is_failing:
            self._say("The metrics of groups are of now again")
        self._is_failing = False


def _families(reader: ViewReader, shown: Shown) -> tuple[list[GaugeMetricFamily], int]:
    """Return the metrics with their values, and the number of dropped series. Sums come before single partitions."""
    for table in _TABLES:
        reader.define_table(table)
    reader.relation("freshness")
    found = [family for each in queried_families(COORDINATORS) for family in _gauges(each, reader.fetch(each.sql))]
    if shown.names is None:
        return found, 0
    for view in ("lag", "partition_ends", "group_status", "verdicts"):
        reader.relation(view)
    reader.connection.execute("SET VARIABLE groups = $1", [shown.groups])
    reader.connection.execute("SET VARIABLE topics = $1", [shown.topics])
    for name, query in _SHOWN.items():
        reader.define(name, query, kept=True)
    room, dropped = shown.max_series, 0
    for each in (*queried_families(GROUPS), *queried_families(shown.names)):
        gauges = _gauges(each, reader.fetch(each.sql))
        series = sum(len(family.samples) for family in gauges)
        if series > room:  # all or none: of some of them a sum would be wrong
            dropped += series
            continue
        room -= series
        found += gauges
    return found, dropped


def _gauges(queried: Queried, rows: list[tuple[object, ...]]) -> list[GaugeMetricFamily]:
    """Return the query's metrics with their values. A null value gives no series."""
    labels = len(queried.families[0].labels)
    found = [GaugeMetricFamily(each.name, each.help, labels=each.labels) for each in queried.families]
    for row in rows:
        named = [str(each) for each in row[:labels]]
        for family, value in zip(found, row[labels:], strict=True):
            if value is not None:
                family.add_metric(named, float(value))  # type: ignore[arg-type]
    return found
