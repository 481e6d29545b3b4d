"""The decoded history, written with each batch and load: what the records that came meant to their groups.

How far it goes is noted in the book (`next_decoded_offset`), which is as far as records are applied, but where a batch
ended within a step: its records wait for the rest of them. What was before the records of a batch the state tables
tell; or, where the history of records may have more than was decoded, since a job was killed or a step waits, that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame

from offsetstream.group_history import driver_changes, spark_changes
from offsetstream.group_history.cut_steps import whole_until
from offsetstream.group_history.spans import IN_SPAN, Span, Spans, within
from offsetstream.stream.apply.history import history_positions
from offsetstream.stream.partitions.partition_book import PartitionBook
from offsetstream.stream.state import columns
from offsetstream.stream.state.size import BatchSize, Share
from offsetstream.stream.state.state_tables import Held
from offsetstream.tables.arrow_rows import append_rows, merge_rows, partition_numbers
from offsetstream.tables.engines import Size, driver_reduces
from offsetstream.tables.ledger import greatest_offsets
from offsetstream.tables.matching import keys_of
from offsetstream.tables.names import DECODED_LOGS, DECODED_TABLES, GROUP_CELLS, RECORDS
from offsetstream.tables.parallel import in_parallel
from offsetstream.tables.record_rows import is_of
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.store import Store
from offsetstream.tables.tally import Log
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import TableWriter

_GROUP = ("offsets_partition", "group_id")


class DecodedHistory:
    """Appends what changed, each change once; `most_at_once`: of so many offsets Spark makes a batch at most."""

    def __init__(
        self, writer: TableWriter, book: PartitionBook, topic_names: Mapping[str, str], most_at_once: int
    ) -> None:
        self._writer = writer
        self._tables = writer.tables
        self._book = book
        self._topic_names = topic_names
        self._most_at_once = most_at_once
        self._written: dict[str, dict[int, int]] = {}
        self._ahead: set[int] = set()

    def open(self, batch: BatchId) -> None:
        """Look at what the tables have; where nothing was decoded yet of a log that is applied, begin behind that.

        What came before is filled by `maintain --fill-history`.
        """
        rows = self._book.rows
        self._begin(
            {n: row.applied for n, row in rows.items() if row.is_owned and row.next_decoded_offset is None}, batch
        )
        above = min((row.next_decoded_offset or 0 for row in rows.values()), default=0)
        greatest = {table: greatest_offsets(self._tables, table, above) for table in (*DECODED_TABLES, RECORDS)}
        self._written = {table: history_positions(found, self._book.log_ids) for table, found in greatest.items()}
        self._ahead = {n for n, last in self._written[RECORDS].items() if last >= (rows[n].next_decoded_offset or 0)}

    def _begin(self, starts: Mapping[int, int], batch: BatchId) -> None:
        """Note from where on the present logs of these partitions are decoded, if that is not known."""
        if not starts:
            return
        found = {(row["offsets_partition"], row["log_id"]): row for row in read_rows(self._tables.open(DECODED_LOGS))}
        logs = {number: (number, self._book.log_ids[number]) for number in starts}
        new = [
            {"offsets_partition": log[0], "log_id": log[1], "decoded_from_offset": starts[number]}
            for number, log in logs.items()
            if log not in found
        ]
        merge_rows(self._tables, DECODED_LOGS, pa.Table.from_pylist(new, schema=load_schema(DECODED_LOGS).arrow), batch)
        known = {number: found[log]["decoded_from_offset"] for number, log in logs.items() if log in found}
        self._book.note_decoded({**starts, **known})

    def append(self, decoded: Held, size: BatchSize, ends: Mapping[int, int], batch: BatchId) -> None:
        """Append what the decoded records of a batch changed, which ends there and is in the history of records."""
        known = {number: row.next_decoded_offset for number, row in self._book.rows.items()}
        spans: Spans = {
            (number, self._book.log_ids[number]): Span(start, end, self._seen_ends(number))
            for number, end in ends.items()
            if (start := known[number]) is not None and end > start
        }
        if size.has_cells or self._ahead & ends.keys():
            spans = self._until_whole_steps(spans, ends)
            open_spans = {log: span for log, span in spans.items() if log[0] in self._ahead}
            if isinstance(decoded, DataFrame):
                self._append_by_spark(spans, open_spans, batch)
            else:
                self._append_by_driver(decoded, spans, open_spans, batch)
        self._book.note_decoded({log[0]: span.end for log, span in spans.items()})
        self._ahead = {log[0] for log, span in spans.items() if span.end < ends[log[0]]}

    def _seen_ends(self, partition: int) -> frozenset[int]:
        """Return the offsets at which an earlier job, which was killed, took a step for ended."""
        return frozenset(self._written[table].get(partition, -1) for table in DECODED_TABLES)

    def _until_whole_steps(self, spans: Spans, ends: Mapping[int, int]) -> Spans:
        """Return the spans without the last step of each log, if Spark may have ended the batch within it."""
        rows = self._book.rows
        offsets = sum(end - rows[number].applied for number, end in ends.items())
        if offsets < self._most_at_once - len(ends):  # it takes a share of each partition, rounded
            return spans
        return whole_until(self._tables, spans)

    def _append_by_driver(self, decoded: pa.Table, spans: Spans, open_spans: Spans, batch: BatchId) -> None:
        ends = {log[0]: span.end for log, span in spans.items() if log not in open_spans}
        is_new = pc.and_(
            is_of(RECORDS, decoded), pc.less(decoded["record_offset"], partition_numbers(decoded, ends, 0))
        )
        rows = driver_changes.with_finality(self._placed(decoded.filter(is_new)), is_final=False)
        cells = driver_changes.cells_of(self._tables, _groups(rows))
        if open_spans:
            more = driver_changes.records_in(self._tables, open_spans)
            before = driver_changes.cells_before(self._tables, open_spans)
            cells = pa.concat_tables([cells, before.filter(pc.is_in(keys_of(before, _GROUP), keys_of(more, _GROUP)))])
            rows = pa.concat_tables([rows, more])
        self._append_rows(pa.concat_tables([cells, rows]), spans, batch)

    def _append_rows(self, rows: pa.Table, spans: Spans, batch: BatchId) -> None:
        found = driver_changes.changes_on_driver(rows, spans, self._topic_names, self._written)
        in_parallel([partial(_append, self._tables, table, changes, batch) for table, changes in found.items()])

    def _append_by_spark(self, spans: Spans, open_spans: Spans, batch: BatchId) -> None:
        records = self._writer.rows(RECORDS)
        rows = spark_changes.recorded(records, spans)
        closed = {log: span for log, span in spans.items() if log not in open_spans}
        groups = rows.where(within(closed, IN_SPAN)).select(*_GROUP).distinct()
        cells = self._writer.rows(GROUP_CELLS).join(groups, [*_GROUP], "left_semi")
        before = spark_changes.last_before(records, open_spans).unionByName(
            spark_changes.with_finality(cells, is_final=False)
        )
        self._append_in_spark(before.unionByName(rows), spans, batch)

    def _append_in_spark(self, rows: DataFrame, spans: Spans, batch: BatchId) -> None:
        with spark_changes.changes_in_spark(rows, spans, self._topic_names, self._written) as found:
            steps = [partial(self._writer.append, table, changes, batch) for table, changes in found.items()]
            in_parallel(steps, inheritable_thread_target(self._writer.spark))

    def append_load(
        self, records: Held, cells: Held, shares: Mapping[int, Share], partitions: Collection[int], batch: BatchId
    ) -> None:
        """Append what the records of loaded partitions changed, which are in the history of records.

        `records` are those that are no commits and `cells` what is left at the end, decoded both. Of a log of which
        the history of records had some before, that tells what is not decoded yet; and what went while nobody read,
        so that compaction took its record, goes at the end.
        """
        rows = self._book.rows
        ends = {number: rows[number].load_end_offset or 0 for number in partitions}
        first = {number: 0 for number in partitions if rows[number].next_decoded_offset is None}
        had_some = {number for number in partitions if number not in first or number in self._written[RECORDS]}
        self._begin(first, batch)
        spans: dict[Log, Span] = {}
        for number, end in ends.items():
            is_closed, share = number in had_some, shares.get(number)
            closed_at = share.newest_ms if share else None
            span = Span(rows[number].next_decoded_offset or 0, end, self._seen_ends(number), is_closed, closed_at)
            spans[number, self._book.log_ids[number]] = span
        open_spans = {log: span for log, span in spans.items() if log[0] in had_some}
        is_held = isinstance(records, pa.Table) and isinstance(cells, pa.Table)
        if is_held and driver_reduces(self._writer.state_writes, self._size_of(open_spans), is_load=True):
            self._load_by_driver(records, cells, spans, open_spans, batch)
        else:
            self._load_by_spark(cells, spans, open_spans, batch)
        self._book.note_decoded(ends)
        self._ahead -= ends.keys()

    def _size_of(self, spans: Spans) -> Size:
        return driver_changes.size_of(self._tables, spans)

    def _load_by_driver(
        self, records: pa.Table, cells: pa.Table, spans: Spans, open_spans: Spans, batch: BatchId
    ) -> None:
        placed = [self._placed(rows.filter(is_of(RECORDS, rows))) for rows in (records, cells)]
        old = pa.array([log[0] for log in open_spans], pa.int32())
        is_old = [pc.is_in(rows["offsets_partition"], old) for rows in placed]
        new = driver_changes.with_finality(placed[0].filter(pc.invert(is_old[0])), is_final=False)
        final = placed[1].filter(pc.and_(is_old[1], pc.invert(placed[1]["is_tombstone"])))
        rows = [
            new,
            driver_changes.cells_before(self._tables, open_spans),
            driver_changes.records_in(self._tables, open_spans),
            driver_changes.with_finality(final, is_final=True),
        ]
        self._append_rows(pa.concat_tables(rows), spans, batch)

    def _placed(self, rows: pa.Table) -> pa.Table:
        return rows.append_column("log_id", partition_numbers(rows, self._book.log_ids, 0).cast(pa.int32()))

    def _load_by_spark(self, cells: Held, spans: Spans, open_spans: Spans, batch: BatchId) -> None:
        records = self._writer.rows(RECORDS)
        rows = spark_changes.last_before(records, open_spans).unionByName(spark_changes.recorded(records, spans))
        if open_spans:
            final = self._final_cells(cells, [log[0] for log in open_spans])
            rows = rows.unionByName(spark_changes.with_finality(final, is_final=True))
        self._append_in_spark(rows, spans, batch)

    def _final_cells(self, cells: Held, partitions: list[int]) -> DataFrame:
        frame = cells if isinstance(cells, DataFrame) else self._writer.spark.createDataFrame(cells)
        rows = frame.where(columns.is_of(RECORDS) & ~frame["is_tombstone"])
        rows = rows.where(rows["offsets_partition"].isin(partitions))
        return rows.withColumn("log_id", columns.partition_number_column(self._book.log_ids, 0).cast("int"))


def _groups(rows: pa.Table) -> set[tuple[int, str]]:
    return set(zip(*(rows[name].to_pylist() for name in _GROUP), strict=True))


def _append(tables: Store, table: str, changes: pa.Table, batch: BatchId) -> None:
    append_rows(tables, table, changes, batch)
