"""The parts that watch the cluster while the job runs, as one value."""

from __future__ import annotations

from dataclasses import dataclass

from offsetstream.cluster.client import Cluster
from offsetstream.stream.monitor.topic_book import TopicBook
from offsetstream.stream.monitor.topic_settings import TopicSettings
from offsetstream.stream.monitor.truncation import TruncationDetector
from offsetstream.stream.partitions.partition_book import PartitionBook
from offsetstream.tables.transaction import BatchId


@dataclass(frozen=True)
class ClusterWatch:
    """The cluster, its topics, the settings of the offsets topic, and the detector of replaced logs."""

    cluster: Cluster
    topics: TopicBook
    settings: TopicSettings
    truncation: TruncationDetector

    def unload_forgotten(self, book: PartitionBook) -> None:
        """Have partitions loaded again if their coordinator just loaded them and retention deleted records."""
        restarted = book.coordinators.take_restarted()
        if self.settings.forgets and restarted:
            book.unload_cut(restarted)

    def refresh_topics(self, batch: BatchId) -> None:
        """Update the table of topics from the cluster. Raise ClusterError."""
        self.topics.look(self.cluster, batch)
