"""The streaming query, and the work between its batches: check the cluster, load partitions, compact, stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.errors import DoubledRowsError, TablesError, UnreachableError
from offsetstream.maintenance.upkeep import Upkeep
from offsetstream.stream.apply.batch import BatchWriter
from offsetstream.stream.apply.load import Loader
from offsetstream.stream.controls import Controls
from offsetstream.stream.lifecycle.checkpoint import Checkpoint
from offsetstream.stream.lifecycle.leaders import LeadersChangedError, Leadership, partitions_text
from offsetstream.stream.lifecycle.patience import LOGIN_CHANGES
from offsetstream.stream.monitor.watch import Observer, TopicChangedError
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
MOVING_SECONDS = 30.0  # for new leaders to be known and to answer
POLL_SECONDS = 1.0


class StopRequestedError(Exception):
    """The micro-batch must not start. Spark does not commit it, and the next query reads it again."""


class LeadersChangedSinceStartError(Exception):
    """Partitions have another leader than when the query started. Another query must continue.

    Spark caches consumers, and these may still hold fetched records of the old leader that no log has any more. Such
    records would be in a later batch, which no check refuses. A new query has a new group id, and so new consumers. No
    setting does the same: Spark drops only idle consumers, and executors of spark-submit accept no settings after the
    start.
    """


class PlacementChangedError(Exception):
    """The brokers place groups by another rule than the tables have. Another query must decode by that rule."""


REFUSALS = (StopRequestedError, LeadersChangedSinceStartError, TopicChangedError)


@dataclass(frozen=True)
class Parts:
    """The parts of an attempt that its queries share, one query after the other."""

    book: PartitionBook
    loader: Loader
    observer: Observer
    leaders: Leadership
    upkeep: Upkeep
    placing: Placing
    controls: Controls


class LiveStream:
    """One streaming query with one checkpoint. A lock separates its batches from the tasks of the main loop.

    `most_at_once`: the maximum number of offsets in a batch.
    """

    def __init__(
        self, parts: Parts, batches: BatchWriter, checkpoint: Checkpoint, *, refresh_seconds: float, most_at_once: int
    ) -> None:
        self._batches = batches
        self._checkpoint = checkpoint
        self._loader, self._book, self._observer = parts.loader, parts.book, parts.observer
        self._leaders, self._upkeep, self._placing = parts.leaders, parts.upkeep, parts.placing
        self._controls = parts.controls
        self._refresh_seconds = refresh_seconds
        self._most_at_once = most_at_once
        self._check = QueryCheck(parts, self._stop_if_ending)
        self._turns = Turns(self._wait_for_turn, self._beat)
        self._triggered: tuple[str, int] | None = None  # what the query did at the last look
        self._batches_done = self._batches_at_look = 0
        self._tended_at, self._has_new_files = time.monotonic(), False
        self._ending = threading.Event()

    def run(self, writer: DataStreamWriter) -> list[int]:
        """Stream until the job is to stop or, with `availableNow`, until everything is applied.

        Return the partitions whose log lost records or is another one, and log the reasons: the caller loads them, and
        continues with a new checkpoint. Raise LeadersChangedError if the query must cover other partitions,
        LeadersChangedSinceStartError or PlacementChangedError if another query must continue, and any other failure of
        the query.
        """
        self._upkeep.measure()
        query = self._checkpoint.start(writer.foreachBatch(self._apply))
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
        started = time.monotonic()
        try:
            self._controls.stalls.beat(BATCH)
            self._stop_if_ending()
            batch, ends = BatchId(self._checkpoint.checkpoint_id, batch_id), self._checkpoint.end_offsets(batch_id)
            report = self._batches.apply(raw, batch, ends, self._check.before_writing)
            seconds = time.monotonic() - started
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
            batch_id,
            report.records,
            seconds,
            report.filtered,
            to_go=report.to_go if is_behind else 0,
            per_second=report.offsets / seconds,
        )
        self._controls.metrics.batch(report.records, seconds, report.filtered or 0)

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
                self._loader.load(behind, self._checkpoint.no_batch)
            elif self._book.has_news and self._batches_done == self._batches_at_look:
                self._book.write(self._checkpoint.no_batch)  # else the next batch does, or the next look
            self._batches_at_look = self._batches_done
            return self._check.lost_by_now(lost)

    def _refresh(self) -> list[int]:
        """Record that an idle topic is still caught up, so that the next start does not load it."""
        with self._turns:
            ends = self._observer.look()
            lost = self._check.lost(ends or {})
            if ends is not None and not lost:  # or the id of a recreated topic would be written before its log is known
                self._observer.refresh_topics(self._checkpoint.no_batch)
                self._book.write(self._checkpoint.no_batch)
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
                if self._book.must_place_again:
                    raise PlacementChangedError("the brokers place groups by another rule than before")
                self._placing.place(self._checkpoint.no_batch)
        return []

    def _reload(self) -> list[int]:
        """Load the partitions that `offsetstream reload` requested."""
        self._controls.signals.reload.clear()
        with self._turns:
            lost = self._check.lost(self._observer.look() or {})
            if not lost:  # otherwise the request waits until they are loaded
                self._loader.load_requested(self._checkpoint.no_batch)
            return self._check.lost_by_now(lost)


def _stop(query: StreamingQuery) -> None:
    try:
        query.stop()
    except (PySparkException, Py4JJavaError) as error:
        # If the cluster is silent, Spark cannot end the query in time (stopTimeout). It starts no other batch.
        if "java.util.concurrent.TimeoutException" not in str(error):
            raise


class QueryCheck:
    """Compare the logs of the partitions that a query reads with the logs at its start.

    A query must read the logs that the tables are from, and these must have lost nothing. `stop_if_ending` raises if
    the query is to end. `failure` is the error of the tables that a batch met.
    """

    def __init__(self, parts: Parts, stop_if_ending: Callable[[], None]) -> None:
        self._book = parts.book
        self._observer = parts.observer
        self._stop_if_ending = stop_if_ending
        self._log_ids = {number: self._book.log_ids[number] for number in parts.leaders.reading}
        self._epochs = self._book.coordinators.known_epochs
        self._late: list[int] = []  # partitions of a batch that were not read for too long
        self._refused: list[int] = []  # partitions for which a batch was refused
        self.failure: TablesError | None = None

    def before_writing(self, batch_ends: Mapping[int, int]) -> None:
        """Refuse a batch if a log may not be the one that the tables are from, or may have lost tombstones.

        The check comes after the batch was read: a log is cut before its new leader returns records. Raises:

        - StopRequestedError: partitions must be loaded; `lost` returns them.
        - UnreachableError: the cluster does not answer, so the batch may be from a log that was not compared.
        - LeadersChangedSinceStartError: a new leader has everything that is applied, but may have other records after
          that.
        """
        deadline = time.monotonic() + MOVING_SECONDS
        while True:
            ends = self._observer.look()
            if ends is None:
                raise UnreachableError("the cluster did not answer before a batch was written")
            self._late = self._behind_for_too_long(batch_ends)
            self._refused = self.lost(ends)
            if self._refused:
                raise StopRequestedError
            moving = self._observer.moving & self._log_ids.keys()
            if not moving:
                break
            if time.monotonic() > deadline:
                raise UnreachableError(f"the leader of {partitions_text(moving)} does not answer")
            self._stop_if_ending()
            time.sleep(POLL_SECONDS)
        self._require_same_leaders()

    def lost(self, ends: Mapping[int, PartitionEnds]) -> list[int]:
        """Return the partitions with which the query must not continue, in the order of the query."""
        lost = {*self._observer.watch.truncation.lost(self._log_ids, ends), *self._late, *self._doubled}
        return [number for number in self._log_ids if number in lost]

    def lost_by_now(self, lost: list[int]) -> list[int]:
        """Return `lost`, or what a load found lost.

        Raise LeadersChangedSinceStartError if nothing is lost but leaders changed.
        """
        found = lost or self.lost({})
        if not found:
            self._require_same_leaders()
        return found

    def explained(self, error: Exception) -> list[int]:
        """Return the partitions for which the query ended with `error`. If it ended for another reason, raise that."""
        ends = self._observer.look()
        if lost := sorted({*self._refused, *self.lost(ends or {})}):
            return lost
        self._require_same_leaders()
        if self.failure is not None:
            raise self.failure
        if ends is None and any(refusal.__name__ in str(error) for refusal in REFUSALS):
            raise UnreachableError("the cluster stopped answering when a batch was refused") from error
        raise error

    def log_reasons(self, lost: Collection[int], warn: Callable[[str], None]) -> None:
        """Log why the query cannot continue with these partitions."""
        late = len(set(lost) & set(self._late))
        if lost and self._doubled:
            warn(f"{self.failure}: they are loaded again")
        if others := len(set(lost) - {*self._late, *self._doubled}):
            warn(f"The logs of {others} offsets partitions lost unread records or are new: they are loaded again")
        if late:
            warn(
                f"{late} offsets partitions were not read for longer than delete.retention.ms, so tombstones may be "
                "gone: they are loaded again"
            )

    def _require_same_leaders(self) -> None:
        epochs = self._book.coordinators.known_epochs
        if changed := sum(epochs[number] != self._epochs[number] for number in self._log_ids):
            raise LeadersChangedSinceStartError(f"{changed} offsets partitions have a new leader")

    def _behind_for_too_long(self, batch_ends: Mapping[int, int]) -> list[int]:
        """Return partitions with records in the batch that were unread for so long that tombstones may be gone."""
        applied, at_most = self._book.next_offsets, self._observer.watch.settings.safe_retention
        behind = (number for number, end in batch_ends.items() if applied.get(number, end) < end)
        return [number for number in behind if self._book.behind_for(number) > at_most]

    @property
    def _doubled(self) -> frozenset[int]:
        return self.failure.partitions if isinstance(self.failure, DoubledRowsError) else frozenset()


class Turns:
    """A lock between micro-batches and the main loop, and its context: only one of them writes at a time.

    `while_waiting` is called every second of a wait for it, and may raise to give up. `step` is called when the context
    has the lock, and when it has given it back.
    """

    def __init__(self, while_waiting: Callable[[], None], step: Callable[[], None] = lambda: None) -> None:
        self._lock = threading.Lock()
        self._while_waiting = while_waiting
        self._step = step

    def __enter__(self) -> None:
        while not self.take(POLL_SECONDS):
            self._while_waiting()
        self._step()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.give_back()
        self._step()

    @property
    def is_taken(self) -> bool:
        """Whether somebody has the lock."""
        return self._lock.locked()

    def take(self, seconds: float = -1) -> bool:
        """Take the lock, waiting up to `seconds` (-1: without limit). Return whether it was taken."""
        return self._lock.acquire(timeout=seconds)

    def give_back(self) -> None:
        """Release the lock."""
        self._lock.release()
