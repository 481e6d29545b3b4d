"""Helpers: what a cluster returns for offsets partitions, and how a book takes it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.records import Share
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.transaction import BatchId

BATCH, LOAD = BatchId(1, 0), BatchId(1, -1)


def ends(stable: int, high: int | None = None, leader: int | None = 5, epoch: int | None = 9) -> PartitionEnds:
    return PartitionEnds(2, stable, stable if high is None else high, leader, epoch, datetime.now(UTC))


def loaded(book: PartitionBook, partition: int, end: int) -> None:
    book.start_load({partition: end})
    book.finish_load(partition, 10, 2, 4)


def events(tables: PathStore) -> Iterator[dict[str, Any]]:
    rows = read_rows(tables.open("partition_events"))
    yield from sorted(rows, key=lambda row: (row["offsets_partition"], row["event_at"]))


def seen(number: int, stable: int, at: datetime) -> dict[int, PartitionEnds]:
    return {number: PartitionEnds(0, stable, stable, 5, 9, at)}


def newest(at: datetime) -> dict[int, Share]:
    return {1: Share(1, round(at.timestamp() * 1000))}
