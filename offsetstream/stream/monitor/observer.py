"""Observes the offsets partitions on the cluster: before each batch and, while the topic is idle, every few seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.errors import ClusterError, RefusedLoginError, UnreachableError
from offsetstream.metrics.job_metrics import JobMetrics
from offsetstream.progress import Progress
from offsetstream.stream.monitor.hanging import HangingTransactions
from offsetstream.stream.monitor.watch import ClusterWatch, TopicChangedError
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.tables.transaction import BatchId

Answer = TypeVar("Answer")


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
        self.watch.truncation.begin()
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
