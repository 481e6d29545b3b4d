"""Load offsets partitions: read each up to its last stable offset and make its rows anew (design, rule 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from offsetstream.cluster.client import Cluster, PartitionEnds
from offsetstream.coordinator.reduction import COMMIT_KEY_TYPES
from offsetstream.stream.cells import last_of_raw_key, with_own_offsets
from offsetstream.stream.decode import as_few_tasks, decode, with_undecodable_offset
from offsetstream.stream.derive import STATE_TABLES
from offsetstream.stream.failures import explain_failure
from offsetstream.stream.history import UNDECODABLE, History
from offsetstream.stream.partition_book import PartitionBook
from offsetstream.stream.positions import number_of
from offsetstream.stream.progress import Progress
from offsetstream.stream.rewritten import RewrittenLogs
from offsetstream.stream.size import ON_DISK, SMALL_RECORDS, collect, measure
from offsetstream.stream.small_state import SmallState
from offsetstream.stream.source import KafkaSource
from offsetstream.stream.start import is_other_log
from offsetstream.stream.state import State
from offsetstream.stream.topic_book import TopicBook
from offsetstream.tables.arrow_rows import merge_rows
from offsetstream.tables.lease import Lease, requested_partitions
from offsetstream.tables.merge import of_partitions
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small import rows_per_partition
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import StateWrites, TableWriter

MAX_OFFSETS_AT_ONCE = 5_000_000
_MORE_AT_ONCE = 4  # times as many offsets as before, where these were mostly gaps


class Loader:
    """Loads partitions, some at a time; readers see the old rows of a partition until the new ones are whole."""

    def __init__(
        self,
        writer: TableWriter,
        source: KafkaSource,
        cluster: Cluster,
        book: PartitionBook,
        topics: TopicBook,
        rewritten: RewrittenLogs,
        coordinator: str,
        *,
        keeps_history: bool = True,
    ) -> None:
        self._writer = writer
        self._source = source
        self._cluster = cluster
        self._book = book
        self._topics = topics
        self._rewritten = rewritten
        self._coordinator = coordinator
        self._keeps_history = keeps_history

    def load_requested(
        self,
        lease: Lease,
        checkpoint_id: int,
        progress: Progress,
        should_stop: Callable[[], bool],
        also: Sequence[int] = (),
    ) -> None:
        """Load what ``offsetstream reload`` asks for and the partitions ``also``; takes the request from the lease."""
        request = lease.read().reload_requested
        partitions = {*also, *requested_partitions(request, self._book.partitions)}
        if self.load(sorted(partitions), checkpoint_id, progress, should_stop) and request is not None:
            lease.finish_reload(request)

    def load(
        self, partitions: Sequence[int], checkpoint_id: int, progress: Progress, should_stop: Callable[[], bool]
    ) -> bool:
        """Load the partitions; ends early, between two steps, when ``should_stop`` says so, and then returns False.

        What fails is noted as failed, and raised.
        """
        batch = BatchId(checkpoint_id, -1)
        if not partitions:
            return True
        try:
            with explain_failure(self._cluster):
                return self._load(partitions, batch, progress, should_stop)
        except Exception as error:  # of whatever kind
            self._book.fail_loads(str(error).split("\n", 1)[0])
            self._book.write(batch)
            raise

    def unload_gone(self, checkpoint_id: int) -> None:
        """Delete what the state tables have of partitions that the topic has no longer: no broker holds it."""
        if self._book.gone:
            batch, only = BatchId(checkpoint_id, -1), of_partitions(self._book.gone)
            for name in STATE_TABLES:
                merge_rows(self._writer.tables, name, load_schema(name).arrow.empty_table(), batch, only=only)
            self._book.unload_gone()
            self._book.write(batch)

    def _load(
        self, partitions: Sequence[int], batch: BatchId, progress: Progress, should_stop: Callable[[], bool]
    ) -> bool:
        ends = self._begin(partitions, batch)
        history = History.open(self._writer, self._book.log_ids, 0, keeps_records=self._keeps_history)
        self._topics.look(self._cluster, batch)
        with progress.load(len(partitions), sum(map(_span, ends.values()))) as loaded:
            left, at_once = dict(sorted(ends.items())), MAX_OFFSETS_AT_ONCE
            while left and not should_stop():
                self._writer.merged_by.clear()
                chunk = _take(left, at_once)
                offsets, records = sum(map(_span, chunk.values())), self._load_chunk(chunk, history, batch)
                loaded(len(chunk), offsets, self._writer.merged_by)
                # Compaction leaves gaps: it is the records that have a cost.
                like_these = MAX_OFFSETS_AT_ONCE * offsets // max(1, records)
                at_once = max(MAX_OFFSETS_AT_ONCE, min(like_these, _MORE_AT_ONCE * offsets))
        return not left

    def _begin(self, partitions: Sequence[int], batch: BatchId) -> dict[int, PartitionEnds]:
        ends = self._cluster.partition_ends(partitions)
        self._book.observe(ends)
        others = {number for number, end in ends.items() if is_other_log(self._book.rows[number], end)}
        for number in others:
            self._book.begin_log(number)
        others.update(self._rewritten.begin())
        self._book.observe({number: end for number, end in ends.items() if number in others})
        self._book.start_load({number: end.last_stable_offset for number, end in ends.items()})
        self._book.write(batch)
        return ends

    def _load_chunk(self, ends: Mapping[int, PartitionEnds], history: History, batch: BatchId) -> int:
        """Load these partitions together, and return how many records there were."""
        filled = {number: end for number, end in ends.items() if _span(end) > 0}
        records: dict[int, int] = {}
        if filled or any(self._book.rows[number]["load_id"] > 1 for number in ends):
            start = {number: end.log_start_offset for number, end in filled.items()}
            stable = {number: end.last_stable_offset for number, end in filled.items()}
            raw = self._source.read(self._writer.spark, start, stable)
            small = self._small(raw) if sum(map(_span, filled.values())) <= SMALL_RECORDS else None
            if small is not None:
                history.append_small(small, batch)
                self._apply_small(small, batch, sorted(ends))
                records = dict(Counter(small["offsets_partition"].to_pylist()))
            else:
                with self._writer.bulk():
                    if self._keeps_history:
                        self._append_history(raw, history, batch)
                    records = self._apply_state(raw, history, batch, sorted(ends))
        self._finish(sorted(ends), records, batch)
        return sum(records.values())

    def _small(self, raw: DataFrame) -> pa.Table | None:
        """Return the decoded records if the driver can hold them, and so write them by itself."""
        decoded = with_own_offsets(decode(raw, len(self._book.rows))).persist(ON_DISK)
        try:
            return collect(decoded) if self._is_for_driver(decoded) else None
        finally:
            decoded.unpersist()

    def _apply_small(self, decoded: pa.Table, batch: BatchId, partitions: list[int]) -> None:
        state = SmallState(self._writer.tables, self._coordinator, self._book.log_ids, self._topics.names)
        state.apply(decoded, batch, loaded=partitions)
        self._writer.merged_by |= dict.fromkeys(STATE_TABLES, StateWrites.DRIVER)

    def _is_for_driver(self, decoded: DataFrame) -> bool:
        return self._writer.state_writes is not StateWrites.SPARK and measure(decoded).is_small

    def _cells(self, raw: DataFrame) -> DataFrame:
        """Return the last record of each key, decoded; without a history also each record that cannot be decoded."""
        if self._keeps_history:
            raw = decodable(self._writer, as_few_tasks(raw), self._book.log_ids)
        else:
            raw = with_undecodable_offset(raw)
        return decode(last_of_raw_key(raw), len(self._book.rows))

    def _apply_state(self, raw: DataFrame, history: History, batch: BatchId, partitions: list[int]) -> dict[int, int]:
        """Apply the last record of each cell; returns the number of records of each partition."""
        cells = self._cells(raw).persist(ON_DISK)
        if self._is_for_driver(cells):
            collected = collect(cells)
            if not self._keeps_history:
                history.append_small(collected, batch)
            self._apply_small(collected, batch, partitions)
        else:
            if not self._keeps_history:
                history.append(cells, batch)
            state = State(self._writer, self._coordinator, self._book.log_ids, self._topics.names)
            state.apply(cells, batch, loaded=partitions)
        counted = cells.groupBy("offsets_partition").agg(F.sum("records").alias("records")).collect()
        cells.unpersist()
        return {row.offsets_partition: row.records for row in counted}

    def _append_history(self, raw: DataFrame, history: History, batch: BatchId) -> None:
        """Append each record to its table.

        Nearly all are commits, known by the key's first two bytes, and go to their table without a second look; the
        topic is read once more for the few others: that takes less than keeping what was read.
        """
        partitions = len(self._book.rows)
        is_commit = F.coalesce(F.substring("key", 1, 2).isin(bytes(2), b"\x00\x01"), F.lit(False))
        seen, decoded = Observation(), Observation()
        raw_seen = raw.observe(seen, F.count(F.when(~is_commit, True)).alias("others"))
        commits = decode(raw_seen.where(is_commit), partitions)
        errors = F.count(F.when(F.col("error").isNotNull(), True)).alias("errors")
        history.append(commits.observe(decoded, errors), batch, ("offset_commits",))
        rest = raw.where(~is_commit) if not decoded.get["errors"] else raw
        if seen.get["others"] or decoded.get["errors"]:
            others = decode(rest, partitions)
            others = others.where(F.col("error").isNotNull() | ~F.col("key_type").isin(*COMMIT_KEY_TYPES))
            others.persist(ON_DISK)
            # Undecodable ones in one append: after a crash between two, the first one's positions would hide the other.
            if self._is_for_driver(others):
                history.append_small(collect(others), batch)
            else:
                history.append(others, batch, ("group_records", UNDECODABLE))
            others.unpersist()

    def _finish(self, partitions: list[int], records: Mapping[int, int], batch: BatchId) -> None:
        groups, offsets = (rows_per_partition(self._writer.tables, table) for table in ("groups", "committed_offsets"))
        for number in partitions:
            counts = (counted.get(number, 0) for counted in (records, groups, offsets))
            self._book.finish_load(number, *counts)
        self._book.write(batch)


def decodable(writer: TableWriter, raw: DataFrame, log_ids: Mapping[int, int]) -> DataFrame:
    """Leave out raw records that the history has as undecodable: none may hide the one before it of its key."""
    if writer.is_empty(UNDECODABLE):
        return raw
    present = writer.rows(UNDECODABLE).where(F.col("log_id") == number_of(log_ids, 0))
    return raw.join(present, ["offsets_partition", "record_offset"], "left_anti")


def _span(ends: PartitionEnds) -> int:
    return max(0, ends.last_stable_offset - ends.log_start_offset)


def _take(left: dict[int, PartitionEnds], offsets: int) -> dict[int, PartitionEnds]:
    """Take the first partitions out of those that are left, with at most so many offsets, but at least one."""
    taken: dict[int, PartitionEnds] = {}
    for number, end in list(left.items()):
        offsets -= _span(end)
        if taken and offsets < 0:
            break
        taken[number] = left.pop(number)
    return taken
