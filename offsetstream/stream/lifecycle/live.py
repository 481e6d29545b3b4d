"""The streaming query, and what is done between two of its batches: look at the cluster, load partitions, stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from offsetstream.cluster.client import PartitionEnds
from offsetstream.errors import DoubledRowsError, TablesError, UnreachableError
from offsetstream.maintenance.upkeep import Upkeep
from offsetstream.progress import Progress
from offsetstream.stream.apply.batch import BatchWriter
from offsetstream.stream.apply.load import Loader
from offsetstream.stream.lifecycle.leaders import LeadersChangedError, Leadership, in_words
from offsetstream.stream.lifecycle.refusals import REFUSALS, LedAnewError, StopRequestedError
from offsetstream.stream.lifecycle.turns import POLL_SECONDS, Turns
from offsetstream.stream.monitor.observer import Observer
from offsetstream.stream.monitor.topic_settings import TopicSettings
from offsetstream.stream.partitions.load_policy import partitions_to_load
from offsetstream.stream.partitions.partition_book import PartitionBook
from offsetstream.tables.lease import Lease
from offsetstream.tables.transaction import BatchId

SAMPLE_SECONDS = 10.0
IDLE_REFRESH_SECONDS = 600.0
UPKEEP_SECONDS = 60.0
MOVING_SECONDS = 30.0  # that leaders may take to be known, or to answer
BATCH_SECONDS = 10.0  # for which a batch that may wait for a lost leader is let go on


@dataclass(frozen=True)
class Signals:
    """What other threads ask of the job: to stop, or to look at the requests for reloads in the lease."""

    stop: threading.Event
    reload: threading.Event


class LiveStream:
    """One streaming query under one checkpoint; batches and what the main loop does exclude each other."""

    def __init__(
        self,
        batches: BatchWriter,
        book: PartitionBook,
        observer: Observer,
        loader: Loader,
        lease: Lease,
        signals: Signals,
        progress: Progress,
        upkeep: Upkeep,
        checkpoint_id: int,
        settings: TopicSettings,
        leaders: Leadership,
    ) -> None:
        self._batches = batches
        self._book = book
        self._observer = observer
        self._loader = loader
        self._lease = lease
        self._signals = signals
        self._progress = progress
        self._upkeep = upkeep
        self._checkpoint_id = checkpoint_id
        self._settings = settings
        self._leaders = leaders
        self._log_ids = {number: book.log_ids[number] for number in leaders.reading}
        self._epochs = book.coordinators.known_epochs
        self._late: list[int] = []  # those that a batch brought on from too long ago
        self._refused: list[int] = []  # those for which a batch was refused
        self._failure: TablesError | None = None  # what a batch met in the tables
        self._turns = Turns(leaders.check_lost)
        self._ending = threading.Event()

    def run(self, writer: DataStreamWriter) -> list[int]:
        """Stream until the job is to stop or, with ``availableNow``, everything is applied.

        Returns the partitions of which the query cannot go on, since their log lost records or is another one, and
        says so: they are to be loaded, and a new checkpoint goes on. Other failures of the query are raised, and
        LeadersChangedError if the query is to be over other partitions, LedAnewError if it is to be another one.
        """
        query = writer.foreachBatch(self._apply).start()
        try:
            lost = self._watch(query)
            error = None if query.isActive else query.exception()
        finally:
            self._end(query)
        if error is not None and not self._signals.stop.is_set():
            lost = self._explained(error)
        self._say_why(lost)
        return lost

    def _explained(self, error: Exception) -> list[int]:
        """Return the partitions for which the query ended, and raise what else it ended for."""
        ends = self._observer.look()
        if lost := sorted({*self._refused, *self._lost(ends or {})}):
            return lost
        self._require_same_leaders()
        if self._failure is not None:
            raise self._failure
        if ends is None and any(refusal.__name__ in str(error) for refusal in REFUSALS):
            raise UnreachableError("the cluster ceased to answer when a batch was refused") from error
        raise error

    def _say_why(self, lost: list[int]) -> None:
        late = len(set(lost) & set(self._late))
        if lost and self._doubled:
            self._progress.say(f"{self._failure}: they are loaded anew")
        if others := len(set(lost) - {*self._late, *self._doubled}):
            self._progress.say(f"The log of {others} offsets partitions lost records that were not read, or is new")
        if late:
            self._progress.say(
                f"{late} offsets partitions were not read for longer than tombstones are sure to stay "
                "(delete.retention.ms): they are loaded anew"
            )

    def _watch(self, query: StreamingQuery) -> list[int]:
        tasks: list[tuple[float, Callable[[], list[int]]]] = [
            (0.0, self._check_leaders),
            (SAMPLE_SECONDS, self._sample),
            (IDLE_REFRESH_SECONDS, self._refresh),
            (UPKEEP_SECONDS, self._tend),
        ]
        done = [time.monotonic() for _ in tasks]
        while query.isActive and not self._signals.stop.wait(POLL_SECONDS):
            lost = self._reload() if self._signals.reload.is_set() else []
            for at, (seconds, task) in enumerate(tasks):
                if not lost and time.monotonic() - done[at] > seconds:
                    lost, done[at] = task(), time.monotonic()
            if lost:
                return lost
        return []

    def _apply(self, raw: DataFrame, batch_id: int) -> None:
        while not self._turns.take(0.1):
            self._stop_if_ending()
        try:
            self._stop_if_ending()
            report = self._batches.apply(raw, batch_id, self._look_before_writing)
        except TablesError as error:
            self._failure = error
            raise
        finally:
            self._turns.give_back()
        self._progress.batch(report.batch_id, report.records, report.seconds, report.merged_by)

    def _look_before_writing(self, batch_ends: Mapping[int, int]) -> None:
        """Refuse a batch if the log may be another one than the tables are from, or lack tombstones that it had.

        Then it is to be loaded. Looked at after the batch was read, since a log is cut before its new leader gives
        records. UnreachableError if the cluster does not answer, since the batch may be of a log that nobody has
        compared yet. LedAnewError if a new leader's log has all that was applied: behind that, it may have other
        records than were read.
        """
        deadline = time.monotonic() + MOVING_SECONDS
        while True:
            ends = self._observer.look()
            if ends is None:
                raise UnreachableError("the cluster did not answer before a batch was written")
            self._late = self._behind_for_too_long(batch_ends)
            self._refused = self._lost(ends)
            if self._refused:
                raise StopRequestedError
            moving = self._observer.moving & self._log_ids.keys()
            if not moving:
                break
            if time.monotonic() > deadline:
                raise UnreachableError(f"the leader of {in_words(moving)} does not answer")
            self._stop_if_ending()
            time.sleep(POLL_SECONDS)
        self._require_same_leaders()

    def _require_same_leaders(self) -> None:
        epochs = self._book.coordinators.known_epochs
        if led_anew := sum(epochs[number] != self._epochs[number] for number in self._log_ids):
            raise LedAnewError(f"{led_anew} offsets partitions are led anew")

    def _behind_for_too_long(self, batch_ends: Mapping[int, int]) -> list[int]:
        """Return the partitions that a batch brings on, but from so long ago that tombstones may be gone."""
        applied, at_most = self._book.next_offsets, self._settings.safe_retention
        behind = (number for number, end in batch_ends.items() if applied.get(number, end) < end)
        return [number for number in behind if self._book.behind_for(number) > at_most]

    def _stop_if_ending(self) -> None:
        if self._signals.stop.is_set() or self._ending.is_set():
            raise StopRequestedError

    def _end(self, query: StreamingQuery) -> None:
        self._ending.set()
        with suppress(LeadersChangedError), self._turns:
            _stop(query)
            return
        # The batch may wait for records that nobody gives. What it has written the next checkpoint finds, as after a
        # crash; and none begins before it has ended.
        if not self._turns.take(BATCH_SECONDS):
            _stop(query)
            self._turns.take()
        self._turns.give_back()
        _stop(query)

    def _check_leaders(self) -> list[int]:
        self._leaders.check()
        return []

    def _sample(self) -> list[int]:
        """Observe the coordinators, and load the partitions that have been behind for too long."""
        with self._turns:
            self._book.claims.thinned_before(self._lease.read().history_kept_from)
            ends = self._observer.look() or {}
            lost = self._lost(ends)
            behind = [] if lost else partitions_to_load(self._book.rows, ends, self._settings.safe_retention)
            if behind:
                self._loader.load(behind, self._checkpoint_id, self._progress, self._signals.stop.is_set)
            elif self._book.has_news:
                self._book.write(self._outside)
            return self._lost_by_now(lost)

    def _refresh(self) -> list[int]:
        """Note that an idle topic is still caught up, so that a later start need not load it."""
        with self._turns:
            ends = self._observer.look()
            lost = self._lost(ends or {})
            if ends is not None and not lost:  # else a topic that was recreated would be known before its log is
                self._observer.look_at_topics(self._outside)
                self._book.write(self._outside)
            return self._lost_by_now(lost)

    def _tend(self) -> list[int]:
        self._upkeep.tend(self._turns, self._progress)
        return []

    def _reload(self) -> list[int]:
        """Do the loads that ``offsetstream reload`` asks for."""
        self._signals.reload.clear()
        with self._turns:
            lost = self._lost(self._observer.look() or {})
            if not lost:  # else the request waits until they are loaded
                self._loader.load_requested(self._lease, self._checkpoint_id, self._progress, self._signals.stop.is_set)
            return self._lost_by_now(lost)

    def _lost_by_now(self, lost: list[int]) -> list[int]:
        """Return these or, after a load, those that it found; LedAnewError if there are none, and others are led."""
        found = lost or self._lost({})
        if not found:
            self._require_same_leaders()
        return found

    def _lost(self, ends: dict[int, PartitionEnds]) -> list[int]:
        """Return the partitions of which the query may not go on; a load may have found another log too."""
        rows = self._book.rows
        return [
            number
            for number, log_id in self._log_ids.items()
            if rows[number].log_id != log_id
            or number in self._late
            or number in self._doubled
            or (number in ends and rows[number].has_lost_records(ends[number]))
        ]

    @property
    def _doubled(self) -> frozenset[int]:
        return self._failure.partitions if isinstance(self._failure, DoubledRowsError) else frozenset()

    @property
    def _outside(self) -> BatchId:
        """What signs writes that belong to no batch."""
        return BatchId(self._checkpoint_id, -1)


def _stop(query: StreamingQuery) -> None:
    try:
        query.stop()
    except (PySparkException, Py4JJavaError) as error:
        # A silent cluster keeps Spark from ending its query (stopTimeout), which can begin no batch any more.
        if "java.util.concurrent.TimeoutException" not in str(error):
            raise
