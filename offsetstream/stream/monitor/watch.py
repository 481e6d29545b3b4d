"""Watches the offsets partitions on the cluster: before each batch and, while the topic is idle, every few seconds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.cluster.client import Cluster
from offsetstream.errors import ClusterError, RefusedLoginError, UnreachableError
from offsetstream.metrics.job_metrics import JobMetrics
from offsetstream.progress import Progress
from offsetstream.spark.failures import explain_failure
from offsetstream.stream.monitor.topics import TopicBook, TopicSettings
from offsetstream.stream.monitor.truncation import TruncationDetector
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.partitions.rows import PartitionRow
from offsetstream.tables.transaction import BatchId

Answer = TypeVar("Answer")


class TopicChangedError(Exception):
    """The topic was recreated, or has other partitions than at the start of the attempt. Another attempt starts."""


@dataclass(frozen=True)
class ClusterWatch:
    """The cluster, its topics, the settings of the offsets topic, and the detector of replaced logs."""

    cluster: Cluster
    topics: TopicBook
    settings: TopicSettings
    truncation: TruncationDetector

    @property
    def safe_retention(self) -> timedelta:
        """How long a load may take: so long a tombstone is guaranteed to stay."""
        return self.settings.safe_retention

    def explained(self) -> AbstractContextManager[None]:
        """Turn a failure that users can fix into one line."""
        return explain_failure(self.cluster)

    def unload_forgotten(self, book: PartitionBook) -> None:
        """Have partitions loaded again if their coordinator just loaded them and retention deleted records."""
        restarted = book.coordinators.take_restarted()
        if self.settings.forgets and restarted:
            book.unload_cut(restarted)

    def refresh_topics(self, batch: BatchId) -> None:
        """Update the table of topics from the cluster. Raise ClusterError."""
        self.topics.look(self.cluster, batch)

    def find_logs(self, partitions: Collection[int], book: PartitionBook) -> dict[int, PartitionEnds]:
        """Return the logs of these partitions that can be loaded now, and take them into the book."""
        ends = self.cluster.available_ends(partitions)
        if not ends:
            return ends
        book.observe(ends)
        others = self.truncation.start_all_new_logs(ends)
        # Skip logs that were not compared: later, nobody could tell their records from those of the log before.
        ends = {number: end for number, end in ends.items() if number not in self.truncation.unsettled}
        book.observe({number: end for number, end in ends.items() if number in others})
        return ends

    def require_same_topic(self) -> None:
        """Raise TopicChangedError if the topic was recreated since `find_logs`. Raise ClusterError."""
        if self.truncation.is_recreated():
            raise TopicChangedError("the topic was recreated while it was read")


class Observer:
    """Query the state of the offsets partitions, and update the book. If the cluster is silent, the next look retries.

    `moving`: the partitions whose leader changed during the last look.
    """

    def __init__(
        self,
        watch: ClusterWatch,
        book: PartitionBook,
        hanging: HangingTransactions,
        progress: Progress,
        metrics: JobMetrics,
    ) -> None:
        self.watch = watch
        self._book = book
        self._hanging = hanging
        self._progress = progress
        self._metrics = metrics
        self._is_silent = False
        self.moving: set[int] = set()

    def look(self) -> dict[int, PartitionEnds] | None:
        """Query the partitions, update the book, and return their offsets; None if the cluster does not answer.

        If a log is not the one that was read, the book starts a new log. Raise TopicChangedError.
        """
        return self._answer(self._look)

    def refresh_topics(self, batch: BatchId) -> None:
        """Update the table of topics from the cluster."""
        self._answer(lambda: self.watch.refresh_topics(batch))

    def _look(self) -> dict[int, PartitionEnds]:
        leaders = self.watch.cluster.leaders()
        if leaders.keys() != self._book.rows.keys():
            raise TopicChangedError(f"the topic has {len(leaders)} partitions, not {len(self._book.rows)}")
        led = [number for number in self._book.partitions if leaders[number] is not None]
        self._book.coordinators.lose(set(self._book.partitions) - set(led))
        if not led:
            raise UnreachableError("no offsets partition has a leader")
        # If the leader changed meanwhile, it may not belong to the epoch: leave it to the next look.
        ends = {
            number: end
            for number, end in self.watch.cluster.available_ends(led).items()
            if end.coordinator_id == leaders[number]
        }
        self.moving = set(led) - ends.keys()
        self.watch.settings.look()
        self._book.observe(ends)
        self.watch.truncation.start_new_logs()
        self.watch.unload_forgotten(self._book)
        self.moving |= self.watch.truncation.unsettled
        self._hanging.look(self._book.rows.values())
        return ends

    def _answer(self, question: Callable[[], Answer]) -> Answer | None:
        """Return the answer, None if there is none. Log once when the cluster stops and when it starts answering."""
        try:
            answer = question()
        except RefusedLoginError:  # the next attempt reads the client's properties again
            raise
        except ClusterError as error:
            self._metrics.answered(does_answer=False)
            if not self._is_silent:
                self._progress.warn(f"Cannot reach the group coordinators: {error}")
            self._is_silent = True
            return None
        self._metrics.answered(does_answer=True)
        if self._is_silent:
            self._progress.say("The group coordinators answer again")
        self._is_silent = False
        return answer


class HangingTransactions:
    """Transactions that stay open for long: each blocks a whole offsets partition (reference 10.1).

    Warns once if a last stable offset has not moved for `at_most`, and logs when it moves again.
    """

    def __init__(self, at_most: timedelta, say: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self._at_most = at_most
        self._say, self._warn = say, warn
        self._reported: dict[int, tuple[int, datetime]] = {}  # the last stable offset and its time, by partition

    def look(self, rows: Iterable[PartitionRow]) -> None:
        """Check the current rows of `offsets_partitions`."""
        now = datetime.now(UTC)
        for row in rows:
            number, blocked = row.offsets_partition, _blocked(row)
            if number in self._reported and self._reported[number] != blocked:
                _, since = self._reported.pop(number)
                self._say(f"Offsets partition {number} is no longer blocked, after {_minutes(now - since)}")
            if blocked and number not in self._reported and now - blocked[1] >= self._at_most:
                self._reported[number] = blocked
                waiting = (row.high_watermark or 0) - blocked[0]
                self._warn(
                    f"Offsets partition {number} is blocked at offset {blocked[0]:,} by a transaction that has been "
                    f"open for {_minutes(now - blocked[1])}: {waiting:,} records wait behind it; "
                    "'offsetstream partitions --blocked' names its producer and the command that ends it"
                )


def _blocked(row: PartitionRow) -> tuple[int, datetime] | None:
    if row.last_stable_offset is None or row.last_stable_offset_since is None:
        return None
    return row.last_stable_offset, row.last_stable_offset_since


def _minutes(duration: timedelta) -> str:
    return f"{duration.total_seconds() / 60:.1f} minutes"
