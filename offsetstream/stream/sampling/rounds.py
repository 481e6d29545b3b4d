"""Rounds of sampling: query the end offsets of the cluster, and write them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice

from offsetstream.cluster.log_ends import HIDDEN, Answers, LogEnds, RecordTimes, TopicPartitionKey
from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.stream.sampling.log_tails import LogTails
from offsetstream.stream.sampling.observed_cluster import ObservedCluster
from offsetstream.stream.sampling.positions import Positions
from offsetstream.stream.sampling.sample_book import SampleBook
from offsetstream.stream.sampling.sample_tables import SampleTables, read_samples
from offsetstream.tables.create import require_cluster
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId

START_SECONDS = 60.0  # between two queries of log start offsets
CLUSTER_SECONDS = 600.0
_MAX_WAITING = 1_000_000  # rows; with more, start again from the tables, as after a crash
_MAX_TAILS = 200  # partitions a round from which a record is read, and as many whose transactions are queried
_MAX_UNEVEN = 2000  # partitions a round whose record times are queried: leaders read their logs for that


class Rounds:
    """Sample end offsets into `topic_partitions` and, if new, into `end_offsets`.

    `warn` gets a line, once, for topics that the user may not see. Without `tails`, only end offsets are queried. Raise
    ClusterError, TablesError, and LeaseError after a later job has written to the tables. Rows that cannot be written
    stay in `book` for the next round.
    """

    def __init__(
        self,
        tables: Store,
        cluster: LogEnds,
        coordinator: Coordinator,
        warn: Callable[[str], None],
        looks_every: timedelta | None = None,
        tails: LogTails | None = None,
    ) -> None:
        self._tables = tables
        self._cluster = cluster
        self._warn = warn
        self._tails = tails
        self._written = SampleTables(tables)
        self._observed = ObservedCluster(tables, cluster, coordinator, warn, looks_every)
        self.book = SampleBook()
        self._positions: Positions | None = None
        self._asked_starts_at = self._observed_at = -CLUSTER_SECONDS
        self._hidden: set[str] = set()

    def ask(self) -> None:
        """Query the end offsets. The positions are read before, so that no lag is negative."""
        if len(self.book.waiting) > _MAX_WAITING:  # they cannot be written
            self.book, self._positions = SampleBook(), None
        positions = self._opened()
        sampled_at, started = datetime.now(UTC), time.monotonic()
        wanted = positions.wanted()
        asks_starts = started - self._asked_starts_at >= START_SECONDS
        answers = self._cluster.ends(wanted, {} if asks_starts else self.book.starts)
        if asks_starts:
            self._asked_starts_at = started
        self.book.take(answers, sampled_at, self._record_times(answers, sampled_at))
        if self._tails is not None:
            self._ask_tails(self._tails, positions, sampled_at)
        self._warn_of_hidden_topics()

    def _ask_tails(self, tails: LogTails, positions: Positions, sampled_at: datetime) -> None:
        """Query what end offsets do not show: records below ends close to groups, and blocking transactions."""
        starts = dict(islice(positions.within(dict(self.book.tails(sampled_at))).items(), _MAX_TAILS))
        self.book.take_records(starts, tails.first_readable(starts), sampled_at)
        blocked = self.book.blocked(sampled_at)[:_MAX_TAILS]
        self.book.take_blocking(blocked, tails.holders(blocked), sampled_at)

    def write(self, batch: BatchId) -> None:
        """Write new rows to `end_offsets`, then `topic_partitions`, and every ten minutes `cluster` if it changed.

        In this order nothing is missing if the job is killed in between: the history comes first.
        """
        if self.book.waiting:
            self._written.write_end_offsets(self.book.waiting, batch)
            self.book.waiting = []
        self._written.write_topic_partitions(self.book.rows(), batch)
        self.write_cluster(batch)

    def write_cluster(self, batch: BatchId) -> None:
        """Write `cluster` if it has changed: at the start and every ten minutes."""
        if time.monotonic() - self._observed_at >= CLUSTER_SECONDS:
            self._observed.write(batch)
            self._observed_at = time.monotonic()

    def _record_times(self, answers: Answers, sampled_at: datetime) -> dict[TopicPartitionKey, RecordTimes]:
        with_changed_rate = islice(self.book.with_changed_rate(answers, sampled_at), _MAX_UNEVEN)
        return self._cluster.record_times({place: round(at.timestamp() * 1000) for place, at in with_changed_rate})

    def _opened(self) -> Positions:
        if self._positions is None:
            require_cluster(self._tables, self._cluster.cluster_id())
            self.book.recall(*read_samples(self._tables))
            self._positions = Positions(self._tables)
        return self._positions

    def _warn_of_hidden_topics(self) -> None:
        hidden = {place.topic for place, each in self.book.partitions.items() if each.error == HIDDEN} - self._hidden
        if hidden:
            self._hidden |= hidden
            more = f" and {len(hidden) - 1} more" if len(hidden) > 1 else ""
            self._warn(
                f"The ends of the topic {min(hidden)}{more} are not sampled: this user lacks DESCRIBE on it. "
                "See docs/reference/rights.md for the rights of each command"
            )
