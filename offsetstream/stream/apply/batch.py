"""One micro-batch of the stream: history, then state, then the book (rule 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from offsetstream.stream.apply.history import History, Sink
from offsetstream.stream.apply.log_pass import LogPass, pass_over
from offsetstream.stream.monitor.gaps import Gaps
from offsetstream.stream.monitor.watch import ClusterWatch
from offsetstream.stream.partitions.rows import offsets_to_go
from offsetstream.stream.records import (
    ON_DISK,
    BatchSize,
    Decoder,
    Records,
    Share,
    batch_size,
    collect_small,
    partition_number,
    with_value_offsets,
    without_filtered,
)
from offsetstream.tables.filters import Filters
from offsetstream.tables.rows import MAX_SMALL_ROWS
from offsetstream.tables.transaction import BatchId, Step, running_alongside


@dataclass(frozen=True)
class BatchReport:
    """What a batch did: its records by kind.

    `offsets`: the number of offsets, also of gaps. `to_go`: those that wait for the next batches. `filtered`: the
    number of filtered records, which `records` does not count; None without filters.
    """

    records: dict[str, int]
    offsets: int
    to_go: int
    filtered: int | None = None


@dataclass(frozen=True)
class BatchRecords:
    """The records of a batch.

    `records`: all of them, or a pass in which tasks reduced them. `of_groups`: at least the group records, for the
    decoded history. `cells`: those for the state, which may be only the last of each key. `shares`: the share of each
    offsets partition.
    """

    records: pa.Table | LogPass
    of_groups: Records
    cells: Records
    size: BatchSize
    shares: Mapping[int, Share]

    def missing_in(self, history: History, starts: Mapping[int, int], ends: Mapping[int, int]) -> set[int]:
        """Return the partitions in which the history lacks records, and will not get them."""
        if isinstance(self.records, LogPass):
            return history.lacks(self.records.written.__getitem__, starts, ends)
        return history.lacks(partial(history.already_in, decoded=self.records), starts, ends)

    def append_to(self, history: History, batch: BatchId) -> Step:
        """Append the records to the history, and return the step that counts them."""
        if isinstance(self.records, LogPass):
            return history.append_passed(self.records, batch)
        return history.append_uncounted(self.records, batch, self.size.tables)


class BatchReader:
    """Reads batches. The Spark job that decodes a small batch brings it to the driver; tasks reduce a larger one."""

    def __init__(self, history: History, placed_by: int | None, filters: Filters) -> None:
        self._history = history
        self._placed_by = placed_by
        self._filters = filters
        self._decoder = Decoder(placed_by, filters)

    @contextmanager
    def read(self, raw: DataFrame, offsets: int, batch: BatchId) -> Iterator[BatchRecords]:
        """Read raw records, which take up to this number of offsets. Tasks write files; only a commit adds these."""
        if (collected := self._collected(raw, offsets)) is not None:
            kept, shares = without_filtered(collected)
            yield BatchRecords(kept, kept, kept, batch_size(kept), shares)
            return
        with pass_over(raw, self._history.target(batch), self._placed_by, self._filters) as passed:
            of_groups, cells = passed.of_groups.fetched(), passed.cells.fetched()
            yield BatchRecords(passed, of_groups, cells, BatchSize(passed.records), passed.shares)

    def _collected(self, raw: DataFrame, offsets: int) -> pa.Table | None:
        """Return the decoded records on the driver; None if there may be too many, or if they are too long."""
        if offsets > MAX_SMALL_ROWS:
            return None
        decoded = with_value_offsets(self._decoder.decode(raw)).persist(ON_DISK)
        try:
            return collect_small(decoded, offsets)
        finally:
            decoded.unpersist()


class BatchWriter:
    """Apply micro-batches to the tables. A repeated batch has no further effect."""

    def __init__(self, sink: Sink, history: History, gaps: Gaps, watch: ClusterWatch) -> None:
        self._sink = sink
        self._history = history
        self._gaps = gaps
        self._watch = watch
        self._reader = BatchReader(history, sink.book.placed_by, sink.filters)

    def apply(
        self,
        raw: DataFrame,
        batch: BatchId,
        ends: Mapping[int, int],
        before_writing: Callable[[Mapping[int, int]], None],
    ) -> BatchReport:
        """Apply the raw records of a micro-batch up to `ends`. Records that were applied before are skipped.

        `before_writing` is called with `ends` after the records are read. It may raise to refuse the batch.
        """
        book = self._sink.book
        starts = book.next_offsets
        new = raw.where(f"record_offset >= {partition_number(starts, 0)}")
        offsets = sum(max(0, end - starts.get(number, 0)) for number, end in ends.items())
        with self._reader.read(new, offsets, batch) as read:
            book.clocks.read(read.shares)
            before_writing(ends)
            book.written.forget()
            incomplete = {*self._gaps.incomplete(ends, read.shares), *read.missing_in(self._history, starts, ends)}
            if read.size.has_cells:
                self._watch.refresh_topics(batch)
            with running_alongside(read.append_to(self._history, batch)):
                if self._history.keeps_records:
                    self._sink.decoded_history.append(read.of_groups, read.size, ends, batch)
                if read.size.has_state:
                    self._sink.state.apply(read.cells, batch, has_cells=read.size.has_cells)
        filtered = {number: share.filtered for number, share in read.shares.items() if share.filtered}
        book.advance(ends, incomplete, filtered)
        book.write(batch)
        return BatchReport(
            read.size.records,
            offsets,
            sum(map(offsets_to_go, book.rows.values())),
            sum(filtered.values()) if self._sink.filters else None,
        )
