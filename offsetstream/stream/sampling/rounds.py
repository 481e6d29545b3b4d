"""One round after the other: ask the cluster where the logs end, and write what it says."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice

from offsetstream.cluster.log_ends import HIDDEN, Answers, LogEnds, RecordTimes, TopicPlace
from offsetstream.coordinator.kinds import Coordinator
from offsetstream.stream.sampling.log_tails import LogTails
from offsetstream.stream.sampling.observed_cluster import ObservedCluster
from offsetstream.stream.sampling.positions import Positions
from offsetstream.stream.sampling.sample_book import SampleBook
from offsetstream.stream.sampling.sample_tables import SampleTables, read_samples
from offsetstream.tables.create import require_tables_of
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId

START_SECONDS = 60.0  # between two questions where logs begin
CLUSTER_SECONDS = 600.0
_WAITING_AT_MOST = 1_000_000  # rows; then all begins anew from the tables, as after a crash
_TAILS_AT_MOST = 200  # a round of which a record is read, and as many whose open transactions are asked for
_UNEVEN_AT_MOST = 2000  # partitions a round whose records' times are asked for: leaders read their logs for that


class Rounds:
    """What is sampled goes to `end_offsets`, where it is new, and to `topic_partitions`.

    Topics whose ends the user may not see are said once. Without `tails` nothing behind the ends is asked.
    Raises ClusterError, TablesError, and LeaseError once a later job has written to the tables; rows that cannot be
    written wait in `book` for the next round.
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
        """Take in where the logs end now. Positions first, ends after: so no lag is below zero."""
        if len(self.book.waiting) > _WAITING_AT_MOST:  # they cannot be written
            self.book, self._positions = SampleBook(), None
        positions = self._opened()
        sampled_at, began = datetime.now(UTC), time.monotonic()
        wanted = positions.wanted()
        asks_all = began - self._asked_starts_at >= START_SECONDS
        answers = self._cluster.ends(wanted, {} if asks_all else self.book.starts)
        if asks_all:
            self._asked_starts_at = began
        self.book.take(answers, sampled_at, self._record_times(answers, sampled_at))
        if self._tails is not None:
            self._ask_behind(self._tails, positions, sampled_at)
        self._tell_of_hidden()

    def _ask_behind(self, tails: LogTails, positions: Positions, sampled_at: datetime) -> None:
        """Ask what ends do not tell, where it matters: below those that groups stand near, and who blocks one."""
        starts = dict(islice(positions.within(dict(self.book.tails(sampled_at))).items(), _TAILS_AT_MOST))
        self.book.take_records(starts, tails.first_readable(starts), sampled_at)
        held = self.book.held(sampled_at)[:_TAILS_AT_MOST]
        self.book.take_holders(held, tails.holders(held), sampled_at)

    def write(self, batch: BatchId) -> None:
        """Write what is new to `end_offsets`, then `topic_partitions`, and every ten minutes `cluster` if it changed.

        A job that is killed between leaves out nothing: of what is new the history knows first.
        """
        if self.book.waiting:
            self._written.write_end_offsets(self.book.waiting, batch)
            self.book.waiting = []
        self._written.write_topic_partitions(self.book.rows(), batch)
        self.write_cluster(batch)

    def write_cluster(self, batch: BatchId) -> None:
        """Write `cluster` if it changed, at first and every ten minutes."""
        if time.monotonic() - self._observed_at >= CLUSTER_SECONDS:
            self._observed.write(batch)
            self._observed_at = time.monotonic()

    def _record_times(self, answers: Answers, sampled_at: datetime) -> dict[TopicPlace, RecordTimes]:
        uneven = islice(self.book.uneven(answers, sampled_at), _UNEVEN_AT_MOST)
        return self._cluster.record_times({place: round(at.timestamp() * 1000) for place, at in uneven})

    def _opened(self) -> Positions:
        if self._positions is None:
            require_tables_of(self._tables, self._cluster.cluster_id())
            self.book.recall(*read_samples(self._tables))
            self._positions = Positions(self._tables)
        return self._positions

    def _tell_of_hidden(self) -> None:
        hidden = {place.topic for place, each in self.book.partitions.items() if each.error == HIDDEN} - self._hidden
        if hidden:
            self._hidden |= hidden
            more = f" and {len(hidden) - 1} more" if len(hidden) > 1 else ""
            self._warn(
                f"The ends of the topic {min(hidden)}{more} are not sampled: this user lacks DESCRIBE on it; "
                "docs/reference/rights.md has the rights of each command"
            )
