"""One micro-batch of the stream: history, then state, then the book (rule 8)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from offsetstream.cluster.client import Cluster
from offsetstream.stream.apply.gaps import Gaps
from offsetstream.stream.apply.history import History
from offsetstream.stream.decode import decode
from offsetstream.stream.monitor.topic_book import TopicBook
from offsetstream.stream.partitions.checkpoint import Checkpoint
from offsetstream.stream.partitions.partition_book import PartitionBook
from offsetstream.stream.state.columns import partition_number_column
from offsetstream.stream.state.size import ON_DISK, by_partition, measure
from offsetstream.stream.state.spark_cells import with_own_offsets
from offsetstream.stream.state.state_tables import StateTables
from offsetstream.tables.engines import StateWrites
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import TableWriter


@dataclass(frozen=True)
class BatchReport:
    """What a batch did: its records by kind, its duration in seconds, and who merged into each state table."""

    batch_id: int
    records: dict[str, int]
    seconds: float
    merged_by: dict[str, StateWrites]


class BatchWriter:
    """Applies micro-batches to the tables, each once, however often it is repeated."""

    def __init__(
        self,
        writer: TableWriter,
        cluster: Cluster,
        book: PartitionBook,
        topics: TopicBook,
        history: History,
        gaps: Gaps,
        coordinator: str,
        checkpoint: Checkpoint,
    ) -> None:
        self._writer = writer
        self._cluster = cluster
        self._book = book
        self._topics = topics
        self._history = history
        self._gaps = gaps
        self._state = StateTables(writer, coordinator, book.log_ids, topics.names)
        self._checkpoint = checkpoint

    def apply(self, raw: DataFrame, batch_id: int, before_writing: Callable[[Mapping[int, int]], None]) -> BatchReport:
        """Apply the raw records of a micro-batch; records that were applied before are passed over.

        ``before_writing`` is called once they are read, with the end in each partition, and may refuse them by raising.
        """
        started = time.monotonic()
        batch = BatchId(self._checkpoint.checkpoint_id, batch_id)
        self._writer.merged_by.clear()
        new = raw.where(F.col("record_offset") >= partition_number_column(self._book.next_offsets, 0))
        decoded = with_own_offsets(decode(new, len(self._book.rows))).persist(ON_DISK)
        try:
            size = measure(decoded)
            records = self._state.held(decoded, size.size)
            shares = by_partition(records)
            self._book.clocks.read(shares)
            ends = self._checkpoint.end_offsets(batch_id)
            before_writing(ends)
            self._book.written.forget()
            incomplete = {
                *self._gaps.incomplete(ends, shares),
                *self._history.lacks(records, self._book.next_offsets, ends),
            }
            if size.has_cells:
                self._topics.look(self._cluster, batch)
            self._history.append(records, batch, size.tables)
            if size.has_state:
                self._state.apply(records, batch, has_cells=size.has_cells)
        finally:
            decoded.unpersist()
        self._book.advance(ends, incomplete)
        self._book.write(batch)
        return BatchReport(batch_id, size.records, time.monotonic() - started, dict(self._writer.merged_by))
