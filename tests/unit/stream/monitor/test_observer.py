from datetime import timedelta
from io import StringIO

import pytest
from rich.console import Console

from offsetstream.cluster import connection
from offsetstream.cluster.client import Cluster
from offsetstream.metrics.job_metrics import JobMetrics
from offsetstream.progress import Progress
from offsetstream.stream.monitor.hanging import HangingTransactions
from offsetstream.stream.monitor.observer import Observer
from offsetstream.stream.monitor.topic_book import TopicBook
from offsetstream.stream.monitor.topic_settings import TopicSettings
from offsetstream.stream.monitor.truncation import TruncationDetector
from offsetstream.stream.monitor.watch import ClusterWatch
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.transaction import BatchId


def test_a_silent_cluster_is_logged_once(tables: PathStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TIMEOUT", 0.2)
    said, book, topics = StringIO(), PartitionBook(tables, range(3)), TopicBook(tables)
    before = dict(book.rows)
    nobody = Cluster("127.0.0.1:1")
    progress = Progress(Console(file=said, soft_wrap=True))
    hanging = HangingTransactions(timedelta(0), progress.say, progress.warn)
    truncation = TruncationDetector(book, None, nobody.topic_id, lambda _: {})
    settings = TopicSettings(nobody, progress.warn)
    observer = Observer(ClusterWatch(nobody, topics, settings, truncation), book, hanging, progress, JobMetrics())
    for _ in range(2):
        assert observer.look() is None
    observer.refresh_topics(BatchId(1, -1))
    (line,) = said.getvalue().splitlines()
    assert " WARN  Cannot reach the group coordinators: no broker answers at 127.0.0.1:1" in line
    assert book.rows == before
