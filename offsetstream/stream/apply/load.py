"""Load offsets partitions: read each up to its last stable offset, and replace its rows (rule 5)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

import pyarrow as pa

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.errors import ClusterError, first_line
from offsetstream.spark.session import bulk_writes
from offsetstream.spark.source import KafkaSource
from offsetstream.stream.apply.history import History, Sink
from offsetstream.stream.apply.log_pass import HistoryTarget, LogPass, pass_on_driver, pass_over
from offsetstream.stream.apply.raw_reader import UnreadableError
from offsetstream.stream.controls import Controls
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.records import Share
from offsetstream.stream.settings import MAX_OFFSETS_AT_ONCE, LoadBy
from offsetstream.tables.lease import requested_partitions
from offsetstream.tables.matching import merge_rows
from offsetstream.tables.names import COMMITTED_OFFSETS, GROUPS, STATE_TABLES, UNDECODABLE
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import rows_per_partition
from offsetstream.tables.sql import in_partitions
from offsetstream.tables.transaction import BatchId

_TOO_SLOW = "Reading took longer than delete.retention.ms, so tombstones may be gone"
_MAX_GROWTH = 10  # times as many offsets as in the last chunk, if that was mostly gaps


class Logs(Protocol):
    """The logs that a load reads: those of a cluster, or those in files."""

    @property
    def safe_retention(self) -> timedelta:
        """How long a load may take before tombstones may be gone."""

    def explained(self) -> AbstractContextManager[None]:
        """Turn a failure that users can fix into one line."""

    def find_logs(self, partitions: Collection[int], book: PartitionBook) -> dict[int, PartitionEnds]:
        """Return the logs of these partitions that can be loaded now, and take them into the book."""

    def refresh_topics(self, batch: BatchId) -> None:
        """Update the table of topics."""

    def require_same_topic(self) -> None:
        """Raise an error if what was read since `find_logs` may be of two topics."""


class LogReader(Protocol):
    """Reads logs in this process. `way`: what the load's line says about it."""

    way: str

    def read(
        self, start: Mapping[int, int], end: Mapping[int, int], epochs: Mapping[int, int | None], /
    ) -> Generator[pa.RecordBatch]:
        """Yield the committed records of each partition from `start` to `end` (exclusive), in the order of its log."""


class _TooSlowError(Exception):
    """A value may have been read before it was deleted, and its tombstone removed before it was read."""


class Loader:
    """Load partitions in chunks. Readers see the old rows of a partition until the new ones are complete."""

    def __init__(self, sink: Sink, logs: Logs, source: LogSource, controls: Controls) -> None:
        self._sink, self._book = sink, sink.book
        self._logs = logs
        self._source = source
        self._controls = controls

    def load_requested(self, batch: BatchId, also: Sequence[int] = ()) -> None:
        """Load the partitions that `offsetstream reload` requested, and the partitions `also`.

        The request is removed from the lease. Partitions that could not be loaded stay requested: they have no leader,
        or the job is to stop.
        """
        lease = self._controls.lease
        request = lease.read().reload_requested
        requested = set(requested_partitions(request, self._book.partitions))
        left = requested & self.load(sorted({*also, *requested}), batch)
        if request is not None and not (left and left == requested):
            lease.finish_reload(request, left)

    def load(self, partitions: Sequence[int], batch: BatchId) -> set[int]:
        """Load the partitions. Return those that were not loaded: they have no leader, or the job is to stop.

        A stop takes effect between two chunks. After an error, the started loads are marked as failed.
        """
        if not partitions:
            return set()
        self._source.begin(partitions)
        try:
            with self._logs.explained():
                return self._load(partitions, batch)
        except Exception as error:
            self._book.fail_loads(first_line(error))
            self._book.write(batch)
            raise

    def unload_gone(self, batch: BatchId) -> None:
        """Delete the rows of partitions that the topic no longer has from the state tables."""
        if self._book.gone:
            replace_where = in_partitions(self._book.gone)
            for name in STATE_TABLES:
                none = load_schema(name).arrow.empty_table()
                merge_rows(self._sink.writer.tables, name, none, batch, replace_where=replace_where)
            self._book.unload_gone()
            self._book.write(batch)

    def _load(self, partitions: Sequence[int], batch: BatchId) -> set[int]:
        ends = self._logs.find_logs(partitions, self._book)
        if not ends:
            return set(partitions)
        self._book.start_load({number: end.last_stable_offset for number, end in ends.items()})
        self._book.write(batch)
        history = self._sink.open_history(batch)
        self._logs.refresh_topics(batch)
        with self._controls.progress.load(len(ends), sum(map(_span, ends.values()))) as loaded:
            left, at_once = dict(sorted(ends.items())), MAX_OFFSETS_AT_ONCE
            while left and not self._controls.is_stopping():
                chunk = self._source.take(left, at_once)
                offsets = sum(map(_span, chunk.values()))
                try:
                    shares = self._load_chunk(chunk, history, batch).values()
                except UnreadableError as error:
                    self._source.give_up(error, self._controls.progress.warn)
                    left = dict(sorted({**left, **chunk}.items()))
                    continue
                filtered = sum(share.filtered for share in shares) if self._sink.filters else None
                loaded(len(chunk), offsets, filtered, self._source.way(chunk))
                self._controls.metrics.filtered(filtered or 0)
                # Compaction leaves gaps. Records cost time, gaps do not.
                records = sum(share.records for share in shares)
                equivalent = MAX_OFFSETS_AT_ONCE * offsets // max(1, records)
                at_once = max(MAX_OFFSETS_AT_ONCE, min(equivalent, _MAX_GROWTH * offsets))
        return {*left, *(set(partitions) - ends.keys())}

    def _load_chunk(self, ends: Mapping[int, PartitionEnds], history: History, batch: BatchId) -> dict[int, Share]:
        """Load these partitions together, and return the share of each."""
        filled = {number: end for number, end in ends.items() if _span(end) > 0}
        shares: dict[int, Share] = {}
        if filled or any(self._book.rows[number].loads > 1 for number in ends):
            replace = partial(self._replace, sorted(ends), filled, history, batch)
            try:
                shares = replace(self._logs.safe_retention)
            except _TooSlowError:
                self._controls.progress.warn(f"{_TOO_SLOW}: reading {len(ends)} offsets partitions again")
                shares = replace(timedelta.max)
        self._finish(sorted(ends), shares, batch)
        return shares

    def _replace(
        self,
        partitions: list[int],
        filled: Mapping[int, PartitionEnds],
        history: History,
        batch: BatchId,
        at_most: timedelta,
    ) -> dict[int, Share]:
        """Replace the rows of the partitions in one pass over the logs in `filled`; the others are empty.

        Return the share of each partition. If reading takes longer than `at_most`, write nothing and raise
        _TooSlowError.
        """
        started, target = datetime.now(UTC), history.target(batch)
        with self._source.pass_over(filled, self._sink, target) as passed, bulk_writes(self._sink.writer.spark):
            if datetime.now(UTC) - started > at_most:
                raise _TooSlowError
            self._logs.require_same_topic()
            cells = passed.cells.fetched()
            history.append_passed(passed, batch)()
            undecodable = passed.records[UNDECODABLE]
            self._controls.metrics.undecodable(undecodable)
            if undecodable:
                self._controls.progress.warn(
                    f"Cannot decode {undecodable:,} records: see the table {UNDECODABLE} for the reasons"
                )
            if history.keeps_records:
                of_groups = passed.of_groups.fetched()
                self._sink.decoded_history.append_load(of_groups, cells, passed.shares, partitions, batch)
            self._sink.state.apply(cells, batch, loaded=partitions)
            return passed.shares

    def _finish(self, partitions: list[int], shares: Mapping[int, Share], batch: BatchId) -> None:
        self._book.clocks.read(shares)
        groups, offsets = (rows_per_partition(self._sink.writer.tables, table) for table in (GROUPS, COMMITTED_OFFSETS))
        for number in partitions:
            share = shares.get(number, Share(0, None))
            counts = (share.records, groups.get(number, 0), offsets.get(number, 0), share.filtered)
            self._book.finish_load(number, *counts)
        self._book.write(batch)


class LogSource:
    """How a load reads logs: by a reader in this process, and by Spark what the reader gives up.

    Without a reader, Spark reads all of them. Without Spark's source, the reader must give nothing up.
    """

    def __init__(self, reader: LogReader | None, source: KafkaSource | None, load_by: LoadBy) -> None:
        self._reader = reader
        self._source = source
        self._load_by = load_by
        self._by_spark = set[int]()

    def begin(self, partitions: Collection[int]) -> None:
        """Begin to load these partitions, all of them by the reader if there is one."""
        self._by_spark = set(partitions) if self._reader is None else set()

    def take(self, left: dict[int, PartitionEnds], offsets: int) -> dict[int, PartitionEnds]:
        """Remove the first partitions from `left` that are read in the same way as the first one.

        They have up to `offsets` offsets, but it is at least one partition.
        """
        taken: dict[int, PartitionEnds] = {}
        is_by_spark = next(iter(left)) in self._by_spark
        for number, end in list(left.items()):
            if (number in self._by_spark) != is_by_spark:
                continue
            offsets -= _span(end)
            if taken and offsets < 0:
                break
            taken[number] = left.pop(number)
        return taken

    def way(self, taken: Collection[int]) -> str:
        """Return in which way these partitions are read, for the load's line."""
        return "by Spark" if self._reader is None or self._by_spark.intersection(taken) else self._reader.way

    def give_up(self, error: UnreadableError, warn: Callable[[str], None]) -> None:
        """Have Spark read the partitions that the reader gave up, unless it must not."""
        if self._load_by == "raw":
            raise ClusterError(f"Cannot read offsets partitions raw, as --load-by demands: {error}") from error
        for number, reason in sorted(error.reasons.items()):
            warn(f"Offsets partition {number} is read by Spark, not raw: {reason}")
        self._by_spark |= error.reasons.keys()

    def pass_over(
        self, ends: Mapping[int, PartitionEnds], sink: Sink, target: HistoryTarget
    ) -> AbstractContextManager[LogPass]:
        """Pass over the logs from their starts to their last stable offsets."""
        start = {number: end.log_start_offset for number, end in ends.items()}
        stable = {number: end.last_stable_offset for number, end in ends.items()}
        spark, placed_by = sink.writer.spark, sink.book.placed_by
        if self._reader is None or start.keys() & self._by_spark:
            assert self._source is not None  # noqa: S101 - only a reader that gives nothing up comes without it
            return pass_over(self._source.read(spark, start, stable), target, placed_by, sink.filters)
        epochs = {number: end.coordinator_epoch for number, end in ends.items()}
        return pass_on_driver(self._reader.read(start, stable, epochs), spark, target, placed_by, sink.filters)


def _span(ends: PartitionEnds) -> int:
    return max(0, ends.last_stable_offset - ends.log_start_offset)
