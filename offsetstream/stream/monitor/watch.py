"""The parts that watch the cluster while the job runs, as one value."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.cluster.client import Cluster
from offsetstream.spark.failures import explain_failure
from offsetstream.stream.monitor.topic_book import TopicBook
from offsetstream.stream.monitor.topic_settings import TopicSettings
from offsetstream.stream.monitor.truncation import TruncationDetector
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.tables.transaction import BatchId


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
