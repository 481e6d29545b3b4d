"""One micro-batch of the stream: history, then state, then the book (rule 8)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from offsetstream.stream.apply.decoded_history import DecodedHistory
from offsetstream.stream.apply.gaps import Gaps
from offsetstream.stream.apply.history import History
from offsetstream.stream.decode import Decoder
from offsetstream.stream.monitor.watch import ClusterWatch
from offsetstream.stream.partitions.checkpoint import Checkpoint
from offsetstream.stream.partitions.partition_book import PartitionBook
from offsetstream.stream.state.columns import partition_number
from offsetstream.stream.state.size import (
    ON_DISK,
    BatchSize,
    Records,
    Share,
    add_shares,
    batch_size,
    by_partition,
    without_filtered,
)
from offsetstream.stream.state.spark_cells import with_value_offsets
from offsetstream.stream.state.state_tables import StateTables
from offsetstream.tables.engines import StateWrites
from offsetstream.tables.filters import Filters
from offsetstream.tables.parallel import running_alongside
from offsetstream.tables.transaction import BatchId


@dataclass(frozen=True)
class BatchReport:
    """What a batch did: its records by kind, its duration in seconds, and who merged into each state table.

    `filtered`: the number of filtered records, which `records` does not count; None without filters.
    """

    batch_id: int
    records: dict[str, int]
    seconds: float
    merged_by: dict[str, StateWrites]
    filtered: int | None = None


class BatchWriter:
    """Apply micro-batches of `checkpoint` to the tables. A repeated batch has no further effect."""

    def __init__(
        self,
        state: StateTables,
        history: History,
        decoded_history: DecodedHistory,
        gaps: Gaps,
        book: PartitionBook,
        watch: ClusterWatch,
        checkpoint: Checkpoint,
        filters: Filters,
    ) -> None:
        self._state = state
        self._history = history
        self._decoded_history = decoded_history
        self._gaps = gaps
        self._book = book
        self._watch = watch
        self.checkpoint = checkpoint
        self._filters = filters
        self._decoder = Decoder(book.placed_by, filters)

    def apply(self, raw: DataFrame, batch_id: int, before_writing: Callable[[Mapping[int, int]], None]) -> BatchReport:
        """Apply the raw records of a micro-batch. Records that were applied before are skipped.

        `before_writing` is called after the records are read, with the end offset of each partition. It may raise to
        refuse the batch.
        """
        started = time.monotonic()
        batch = BatchId(self.checkpoint.checkpoint_id, batch_id)
        self._state.merged_by.clear()
        new = raw.where(f"record_offset >= {partition_number(self._book.next_offsets, 0)}")
        decoded = with_value_offsets(self._decoder.decode(new)).persist(ON_DISK)
        try:
            ends = self.checkpoint.end_offsets(batch_id)
            records, size, filtered = self._prepared(decoded, ends)
            shares = by_partition(records)
            add_shares(shares, filtered)
            self._book.clocks.read(shares)
            before_writing(ends)
            self._book.written.forget()
            incomplete = {
                *self._gaps.incomplete(ends, shares),
                *self._history.lacks(records, self._book.next_offsets, ends),
            }
            if size.has_cells:
                self._watch.refresh_topics(batch)
            count = self._history.append_uncounted(records, batch, size.tables)
            with running_alongside(count):
                if self._history.keeps_records:
                    self._decoded_history.append(records, size, ends, batch)
                if size.has_state:
                    self._state.apply(records, batch, has_cells=size.has_cells)
        finally:
            decoded.unpersist()
        self._book.advance(ends, incomplete, {number: share.filtered for number, share in filtered.items()})
        self._book.write(batch)
        total = sum(share.filtered for share in filtered.values()) if self._filters else None
        return BatchReport(batch_id, size.records, time.monotonic() - started, dict(self._state.merged_by), total)

    def _prepared(self, decoded: DataFrame, ends: Mapping[int, int]) -> tuple[Records, BatchSize, dict[int, Share]]:
        """Return the records for the engine that writes them, their size, and the shares of filtered records.

        A small batch is collected by the Spark job that reads it. A larger one is measured first.
        """
        starts = self._book.next_offsets
        collected = self._state.collect_small(
            decoded, sum(max(0, end - starts.get(number, 0)) for number, end in ends.items())
        )
        kept, filtered = without_filtered(decoded if collected is None else collected)
        size = batch_size(kept)
        return self._state.for_engine(kept, size.size), size, filtered
