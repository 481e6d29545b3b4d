"""A cluster that does not answer, and transactions that stay open."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.console import Console

from offsetstream.cluster import connection
from offsetstream.cluster.client import Cluster
from offsetstream.metrics.job_metrics import JobMetrics
from offsetstream.progress import Progress
from offsetstream.stream.monitor.topics import TopicBook, TopicSettings
from offsetstream.stream.monitor.truncation import TruncationDetector
from offsetstream.stream.monitor.watch import ClusterWatch, HangingTransactions, Observer
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.partitions.rows import PartitionRow
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


FIFTEEN = timedelta(minutes=15)


def row(number: int, stable: int, high: int, minutes: float | None) -> PartitionRow:
    since = None if minutes is None else datetime.now(UTC) - timedelta(minutes=minutes)
    return PartitionRow(number, last_stable_offset=stable, high_watermark=high, last_stable_offset_since=since)


def test_a_long_transaction_is_logged_once_and_its_end_once() -> None:
    said: list[str] = []
    hanging = HangingTransactions(FIFTEEN, said.append, said.append)
    hanging.look([row(0, 5, 5, None), row(1, 90, 1_100, 14.9), row(2, 7, 9, None)])
    assert said == []
    stands = row(1, 90, 1_100, 15.01)
    for _ in range(3):
        hanging.look([row(0, 5, 5, None), stands])
    hanging.look([replace(stands, high_watermark=2_000)])
    assert len(said) == 1
    assert said[0].startswith(
        "Offsets partition 1 is blocked at offset 90 by a transaction that has been open for 15.0 minutes: "
        "1,010 records wait behind it; "
    )
    hanging.look([row(1, 2_000, 2_000, None)])
    assert said[1:] == ["Offsets partition 1 is no longer blocked, after 15.0 minutes"]
    hanging.look([row(1, 2_500, 2_600, 0)])  # the next transaction
    hanging.look([row(1, 2_500, 2_600, 16)])
    assert [line.split(" by ")[0] for line in said[2:]] == ["Offsets partition 1 is blocked at offset 2,500"]
