"""Whom the job asks of the cluster, again and again, each of which remembers what it was told."""

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
    """The cluster; its topics by id, the settings of the offsets topic, and which logs were written anew."""

    cluster: Cluster
    topics: TopicBook
    settings: TopicSettings
    truncation: TruncationDetector

    def unload_forgotten(self, book: PartitionBook) -> None:
        """Have those partitions loaded anew whose coordinators have just done so, and lack records by retention."""
        restarted = book.coordinators.take_restarted()
        if self.settings.forgets and restarted:
            book.unload_cut(restarted)

    def look_at_topics(self, batch: BatchId) -> None:
        """Take in the topics that the cluster has now; raises ClusterError."""
        self.topics.look(self.cluster, batch)
