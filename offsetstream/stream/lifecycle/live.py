"""The streaming query, and the work between its batches: check the cluster, load partitions, compact, stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from offsetstream.errors import TablesError
from offsetstream.maintenance.upkeep import Upkeep
from offsetstream.stream.apply.batch import BatchWriter
from offsetstream.stream.apply.load import Loader
from offsetstream.stream.controls import Controls
from offsetstream.stream.lifecycle.leaders import LeadersChangedError, Leadership
from offsetstream.stream.lifecycle.patience import LOGIN_CHANGES
from offsetstream.stream.lifecycle.query_check import QueryCheck
from offsetstream.stream.lifecycle.refusals import PlacementChangedError, StopRequestedError
from offsetstream.stream.lifecycle.turns import POLL_SECONDS, Turns
from offsetstream.stream.monitor.observer import Observer
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.partitions.clocks import partitions_to_load
from offsetstream.stream.partitions.placing import Placing
from offsetstream.stream.stall import BATCH, MAIN, QUERY
from offsetstream.tables.transaction import BatchId

SAMPLE_SECONDS = 10.0
IDLE_REFRESH_SECONDS = 600.0
REFRESH_SECONDS = 60.0  # if no samples show that an idle topic was checked
UPKEEP_SECONDS = 60.0
PLACEMENT_SECONDS = 60.0
BATCH_SECONDS = 10.0  # for a batch to end that may wait for a lost leader


class LiveStream:
    """One streaming query with one checkpoint. A lock separates its batches from the tasks of the main loop.

    `most_at_once`: the maximum number of offsets in a batch.
    """

    def __init__(
        self,
        batches: BatchWriter,
        loader: Loader,
        book: PartitionBook,
        observer: Observer,
        leaders: Leadership,
        upkeep: Upkeep,
        placing: Placing,
        controls: Controls,
        *,
        refresh_seconds: float,
        most_at_once: int,
    ) -> None:
        self._batches = batches
        self._loader = loader
        self._book = book
        self._observer = observer
        self._leaders = leaders
        self._upkeep = upkeep
        self._placing = placing
        self._controls = controls
        self._refresh_seconds = refresh_seconds
        self._most_at_once = most_at_once
        self._check = QueryCheck(book, observer, leaders.reading, self._stop_if_ending)
        self._turns = Turns(self._wait_for_turn, self._beat)
        self._triggered: tuple[str, int] | None = None  # what the query did at the last look
        self._batches_done = self._batches_at_look = 0
        self._tended_at, self._has_new_files = time.monotonic(), False
        self._ending = threading.Event()

    def run(self, writer: DataStreamWriter) -> list[int]:
        """Stream until the job is to stop or, with `availableNow`, until everything is applied.

        Return the partitions whose log lost records or is another one, and log the reasons: the caller loads them, and
        continues with a new checkpoint. Raise LeadersChangedError if the query must cover other partitions,
        LedAnewError or PlacedAnewError if another query must continue, and any other failure of the query.
        """
        self._upkeep.measure()
        query = self._batches.checkpoint.start(writer.foreachBatch(self._apply))
        try:
            lost = self._watch(query)
            error = None if query.isActive else query.exception()
        finally:
            self._controls.stalls.rest(QUERY)
            self._end(query)
        if error is not None and not self._controls.is_stopping():
            lost = self._check.explained(error)
        self._check.log_reasons(lost, self._controls.progress.warn)
        return lost

    def _watch(self, query: StreamingQuery) -> list[int]:
        tasks: list[tuple[float, Callable[[], list[int]]]] = [
            (0.0, self._check_leaders),
            (SAMPLE_SECONDS, self._sample),
            (self._refresh_seconds, self._refresh),
            (UPKEEP_SECONDS, self._tend),
            (PLACEMENT_SECONDS, self._find_placement_rule),
        ]
        done = [time.monotonic() for _ in tasks]
        signals = self._controls.signals
        while query.isActive and not signals.stop.wait(POLL_SECONDS):
            self._beat()
            self._check_moves(query)
            lost = self._reload() if signals.reload.is_set() else []
            for at, (seconds, task) in enumerate(tasks):
                if not lost and time.monotonic() - done[at] > seconds and not signals.stop.is_set():
                    lost, done[at] = task(), time.monotonic()
                    self._beat()
            if lost:
                return lost
        return []

    def _apply(self, raw: DataFrame, batch_id: int) -> None:
        while not self._turns.take(0.1):
            self._stop_if_ending()
        try:
            self._controls.stalls.beat(BATCH)
            self._stop_if_ending()
            report = self._batches.apply(raw, batch_id, self._check.before_writing)
        except TablesError as error:
            self._check.failure = error
            raise
        finally:
            self._controls.stalls.rest(BATCH)
            self._batches_done += 1
            self._turns.give_back()
        self._has_new_files = True
        is_behind = report.to_go >= self._most_at_once  # the next batch is full too
        self._controls.progress.batch(
            report.batch_id,
            report.records,
            report.seconds,
            report.filtered,
            to_go=report.to_go if is_behind else 0,
            per_second=report.offsets / report.seconds,
        )
        self._controls.metrics.batch(report.records, report.seconds, report.filtered or 0)

    def _beat(self) -> None:
        self._controls.stalls.beat(MAIN)

    def _wait_for_turn(self) -> None:
        self._beat()  # the batch that has the lock is watched itself
        self._leaders.check_lost()

    def _check_moves(self, query: StreamingQuery) -> None:
        """Record a step of the query, unless Spark does what it did at the last look, outside of a batch."""
        status = query.status
        now = (status["message"], self._batches_done)
        if self._turns.is_taken or not status["isTriggerActive"] or now != self._triggered:
            self._controls.stalls.beat(QUERY)
        self._triggered = now

    def _stop_if_ending(self) -> None:
        if self._controls.is_stopping() or self._ending.is_set():
            raise StopRequestedError

    def _end(self, query: StreamingQuery) -> None:
        self._ending.set()
        with suppress(LeadersChangedError, *LOGIN_CHANGES), self._turns:
            _stop(query)
            return
        # The batch may wait for records that no broker returns. As after a crash, the next checkpoint finds what the
        # batch has written; it does not start before the batch has ended.
        if not self._turns.take(BATCH_SECONDS):
            _stop(query)
            while not self._turns.take(POLL_SECONDS):
                self._beat()
        self._turns.give_back()
        _stop(query)

    def _check_leaders(self) -> list[int]:
        self._leaders.check()
        return []

    def _sample(self) -> list[int]:
        """Observe the coordinators, and load the partitions that were not read for too long."""
        with self._turns:
            self._book.claims.thinned_before(self._controls.lease.seen.history_kept_from)
            ends = self._observer.look() or {}
            lost = self._check.lost(ends)
            at_most = self._observer.watch.settings.safe_retention
            behind = [] if lost else partitions_to_load(self._book.rows, ends, at_most)
            if behind:
                self._loader.load(behind, self._batches.checkpoint.checkpoint_id)
            elif self._book.has_news and self._batches_done == self._batches_at_look:
                self._book.write(self._no_batch)  # else the next batch does, or the next look
            self._batches_at_look = self._batches_done
            return self._check.lost_by_now(lost)

    def _refresh(self) -> list[int]:
        """Record that an idle topic is still caught up, so that the next start does not load it."""
        with self._turns:
            ends = self._observer.look()
            lost = self._check.lost(ends or {})
            if ends is not None and not lost:  # or the id of a recreated topic would be written before its log is known
                self._observer.refresh_topics(self._no_batch)
                self._book.write(self._no_batch)
            return self._check.lost_by_now(lost)

    def _tend(self) -> list[int]:
        """Compact and clean the tables after batches, and rarely on an idle topic: opening a table may be slow."""
        if not self._has_new_files and time.monotonic() - self._tended_at < IDLE_REFRESH_SECONDS:
            return []
        self._tended_at, self._has_new_files = time.monotonic(), False
        self._upkeep.tend(self._turns, self._controls.progress)
        return []

    def _find_placement_rule(self) -> list[int]:
        """Find out by which rule the brokers place groups, unless that is final."""
        if self._placing.is_open:
            with self._turns:
                self._placing.find()
                if self._placing.must_place_again:
                    raise PlacementChangedError("the brokers place groups by another rule than before")
                self._placing.place(self._no_batch)
        return []

    def _reload(self) -> list[int]:
        """Load the partitions that `offsetstream reload` requested."""
        self._controls.signals.reload.clear()
        with self._turns:
            lost = self._check.lost(self._observer.look() or {})
            if not lost:  # otherwise the request waits until they are loaded
                self._loader.load_requested(self._batches.checkpoint.checkpoint_id)
            return self._check.lost_by_now(lost)

    @property
    def _no_batch(self) -> BatchId:
        """The id for writes outside of batches."""
        return BatchId(self._batches.checkpoint.checkpoint_id, -1)


def _stop(query: StreamingQuery) -> None:
    try:
        query.stop()
    except (PySparkException, Py4JJavaError) as error:
        # If the cluster is silent, Spark cannot end the query in time (stopTimeout). It starts no other batch.
        if "java.util.concurrent.TimeoutException" not in str(error):
            raise
