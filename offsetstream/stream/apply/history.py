"""The histories, and what a batch or a load writes to besides.

`History` has every record that was read, once, in log order. `DecodedHistory` has what the records changed in their
groups, written with each batch and load.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.group_history.decoding import Decoding, Span, Spans, spans_where, stored_tails, until_complete_steps
from offsetstream.group_history.driver_changes import DriverChangeWriter, placed
from offsetstream.group_history.task_changes import TaskChangeWriter
from offsetstream.stream.apply.log_pass import HistoryTarget, LogPass
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.records import BatchSize, Records, Share, by_partition, is_commit
from offsetstream.stream.state import StateTables
from offsetstream.tables.filters import NO_FILTERS, Filters
from offsetstream.tables.ledger import count_between, count_uncounted, greatest_offsets, write_entries
from offsetstream.tables.matching import merge_rows
from offsetstream.tables.names import DECODED_LOGS, DECODED_TABLES, RECORD_TABLES, RECORDS, UNDECODABLE
from offsetstream.tables.rows import belongs_to, partition_numbers, with_history_columns
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import append_rows, read_rows
from offsetstream.tables.tally import Log, Tally
from offsetstream.tables.transaction import BatchId, Step, in_parallel
from offsetstream.tables.write import TableWriter, task_writers


class Sink:
    """What batches and loads write, in this order: the history, the decoded history, the state, and last the book.

    `topic_names`: by topic id; the mapping may grow. `filters`: which records they leave out. `most_at_once`: the
    maximum number of offsets in a batch of Spark.
    """

    def __init__(
        self,
        writer: TableWriter,
        book: PartitionBook,
        topic_names: Mapping[str, str],
        coordinator: Coordinator,
        *,
        filters: Filters = NO_FILTERS,
        most_at_once: int,
    ) -> None:
        self.writer, self.book, self.filters = writer, book, filters
        self.decoded_history = DecodedHistory(writer, book, topic_names, most_at_once)
        self.state = StateTables(writer.tables, coordinator, book.log_ids, topic_names, lambda: book.placed_by is None)

    def open_history(self, batch: BatchId, above: int = 0) -> History:
        """Open the histories at the positions of their tables. `above` and `batch`: see `History.open`."""
        keeps_records = self.book.claims.keeps_history
        history = History.open(self.writer, self.book.log_ids, above, batch, keeps_records=keeps_records)
        if keeps_records:
            self.decoded_history.open(history.recorded, batch)
        return history


class History:
    """Append each decoded record once to its history table.

    `written`: for each table, the greatest record offset of each partition when the job started. The job before may
    have ended between an append and the end of its batch. `kept`: the tables that are written; other records are
    skipped.
    """

    def __init__(
        self,
        writer: TableWriter,
        log_ids: Mapping[int, int],
        written: Mapping[str, Mapping[int, int]],
        kept: Collection[str] = RECORD_TABLES,
    ) -> None:
        self._writer = writer
        self._log_ids = log_ids
        self._written = written
        self._kept = kept

    @classmethod
    def open(
        cls, writer: TableWriter, log_ids: Mapping[int, int], above: int, batch: BatchId, *, keeps_records: bool
    ) -> History:
        """Open the history, and add rows that an earlier job did not count to the ledger.

        Only rows with an offset of at least `above` are read: below the applied positions, the tables are complete.
        Without `keeps_records`, only undecodable records are written: no other table has them. `batch`: a load.
        """
        kept = RECORD_TABLES if keeps_records else (UNDECODABLE,)
        greatest = count_uncounted(writer.tables, kept, above, batch)
        written = {table: history_positions(greatest[table], log_ids) for table in kept}
        return cls(writer, log_ids, written, kept)

    @property
    def recorded(self) -> Mapping[int, int]:
        """The greatest offset of a group record by partition, at the start of the job."""
        return self._written.get(RECORDS, {})

    @property
    def keeps_records(self) -> bool:
        """Whether decodable records are written."""
        return len(self._kept) > 1

    def lacks(
        self, read: Callable[[str], Mapping[int, int]], starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> set[int]:
        """Return the partitions in which the tables lack some of the records that were read, and will not get them.

        `read` returns for a table how many records it should have already, by offsets partition: `already_in` for
        decoded records, or those of `LogPass.written`.

        An earlier job wrote records from `starts` on, and was killed before it recorded a gap: its leader's log may
        have been compacted further than the log of the leader now. Without a history, nothing can be missing.
        """
        found: set[int] = set()
        for table, written in self._written.items() if self.keeps_records else ():
            until = {number: min(end, written.get(number, -1) + 1) for number, end in ends.items()}
            ranges = {
                (number, self._log_ids[number]): (starts[number], end)
                for number, end in until.items()
                if end > starts.get(number, end)
            }
            if ranges:
                stored, expected = count_between(self._writer.tables, table, ranges), read(table)
                found |= {log[0] for log in ranges if expected.get(log[0], 0) > stored.get(log, 0)}
        return found

    def already_in(self, table: str, decoded: pa.Table) -> dict[int, int]:
        """Return how many of the decoded records a table should have already, by offsets partition."""
        is_old = pc.and_(belongs_to(table, decoded), pc.invert(self._is_new(table, decoded)))
        return {number: share.records for number, share in by_partition(decoded.filter(is_old)).items()}

    def _is_new(self, table: str, decoded: pa.Table) -> pa.Array:
        return pc.greater(decoded["record_offset"], partition_numbers(decoded, self._written.get(table, {}), -1))

    def append_uncounted(self, decoded: pa.Table, batch: BatchId, tables: Collection[str] = RECORD_TABLES) -> Step:
        """Append the decoded records, and return the step that counts them.

        The step may run in parallel to what comes next. If the job dies before it, the next job counts the rows.
        """
        placed = decoded.append_column("log_id", partition_numbers(decoded, self._log_ids, 0))
        tallies = {table: Tally(table) for table in tables if table in self._kept}
        in_parallel([partial(self._append_rows, table, placed, batch, tally) for table, tally in tallies.items()])
        entries = {table: tally.entries for table, tally in tallies.items()}
        return partial(write_entries, self._writer.tables, entries, batch)

    def _append_rows(self, table: str, decoded: pa.Table, batch: BatchId, tally: Tally) -> None:
        is_new = pc.and_(belongs_to(table, decoded), self._is_new(table, decoded))
        rows = append_rows(self._writer.tables, table, with_history_columns(table, decoded.filter(is_new)), batch)
        if rows is not None:
            tally.add(rows)

    def target(self, batch: BatchId) -> HistoryTarget:
        """Return what a pass over the log needs to write the records that are not there yet."""
        written = {table: dict(self._written.get(table, {})) for table in self._kept}
        writers = task_writers(self._writer.tables, self._kept, batch)
        return HistoryTarget(writers, dict(self._log_ids), written, is_decoded=self.keeps_records)

    def append_passed(self, passed: LogPass, batch: BatchId) -> Step:
        """Append what a pass over the log wrote, and return the step that counts it, as `append_uncounted` does."""
        self._writer.append(passed.history, batch)
        entries = {table: rows.entries for table, rows in passed.history.items() if rows.entries}
        return partial(write_entries, self._writer.tables, entries, batch)  # all at once: a batch does it once


def history_positions(greatest: Mapping[Log, int], log_ids: Mapping[int, int]) -> dict[int, int]:
    """Return the greatest record offset by partition, for the current logs."""
    return {partition: offset for (partition, log), offset in greatest.items() if log == log_ids.get(partition, 0)}


class DecodedHistory:
    """Append each change once. `most_at_once`: the maximum number of offsets in a batch of Spark.

    The book has its position (`next_decoded_offset`). It equals the applied position, unless a batch ended within a
    step (the records of one append): then these records wait for the rest. The state before the records of a batch
    comes from the state tables. If the history of records has more than was decoded, because a job was killed or a step
    waits, the state comes from that history.

    The driver decodes few records, and tasks decode many. For stored spans, both read the history of records. For other
    spans of a batch, the state before them comes from the state tables.
    """

    def __init__(
        self, writer: TableWriter, book: PartitionBook, topic_names: Mapping[str, str], most_at_once: int
    ) -> None:
        self._writer = writer
        self._tables = writer.tables
        self._book = book
        self._driver = DriverChangeWriter(writer.tables, topic_names)
        self._tasks = TaskChangeWriter(writer, topic_names)
        self._most_at_once = most_at_once
        self._written: dict[str, dict[int, int]] = {}
        self._recorded: Mapping[int, int] = {}
        self._ahead: set[int] = set()

    def open(self, recorded: Mapping[int, int], batch: BatchId) -> None:
        """Read the positions of the tables. If nothing of an applied log was decoded, start after the applied offset.

        `maintain --fill-history` decodes what came before. `recorded`: see `History.recorded`.
        """
        rows = self._book.rows
        self._start_logs(
            {n: row.applied for n, row in rows.items() if row.is_owned and row.next_decoded_offset is None}, batch
        )
        above = min((row.next_decoded_offset or 0 for row in rows.values()), default=0)
        greatest = {table: greatest_offsets(self._tables, table, above) for table in DECODED_TABLES}
        self._written = {table: history_positions(found, self._book.log_ids) for table, found in greatest.items()}
        self._recorded = recorded
        decoded = {n: row.next_decoded_offset or 0 for n, row in rows.items()}
        # A step waits, or a job was killed after it wrote the history of records.
        self._ahead = {n for n, end in decoded.items() if end < rows[n].applied or end <= recorded.get(n, -1)}

    def _start_logs(self, starts: Mapping[int, int], batch: BatchId) -> None:
        """Write from which offset on the current logs of these partitions are decoded, if that is unknown."""
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

    def append(self, of_groups: Records, size: BatchSize, ends: Mapping[int, int], batch: BatchId) -> None:
        """Append the changes by a batch up to `ends`. The history of records has it already.

        `of_groups`: the decoded group records of the batch; others do no harm.
        """
        rows = self._book.rows
        spans: Spans = {
            (number, rows[number].log_id): Span(start, end, number in self._ahead, self._known_step_ends(number))
            for number, end in ends.items()
            if (start := rows[number].next_decoded_offset) is not None and end > start
        }
        if size.has_cells or self._ahead & ends.keys():
            spans = self._until_complete_steps(spans, ends, of_groups)
            decoding = Decoding(spans, self._written, batch)
            if isinstance(of_groups, pa.Table):
                self._driver.append_batch(of_groups, decoding)
            else:
                self._tasks.append_batch(decoding)
        self._book.note_decoded({log[0]: span.end for log, span in spans.items()})
        self._ahead = {log[0] for log, span in spans.items() if span.end < ends[log[0]]}

    def append_load(
        self,
        of_groups: Records,
        cells: Records,
        shares: Mapping[int, Share],
        partitions: Collection[int],
        batch: BatchId,
    ) -> None:
        """Append the changes by the records of loaded partitions. The history of records has these already.

        `of_groups`: the decoded group records. `cells`: the decoded state after them. For logs that the tables knew
        before, records that are not decoded yet come from the history of records.
        """
        rows = self._book.rows
        first = {number: 0 for number in partitions if rows[number].next_decoded_offset is None}
        known = {number for number in partitions if number not in first or number in self._recorded}
        self._start_logs(first, batch)
        spans = {
            (number, rows[number].log_id): Span(
                start=rows[number].next_decoded_offset or 0,
                end=rows[number].load_end_offset or 0,
                is_stored=number in known,
                steps_end_at=self._known_step_ends(number),
                is_closed=number in known,
                closed_at_ms=shares[number].newest_ms if number in shares else None,
            )
            for number in partitions
        }
        decoding = Decoding(spans, self._written, batch)
        stored = self._driver.size_of(decoding.of(is_stored=True))
        final = cells if isinstance(cells, pa.Table) else cells.decoded.where(f"NOT {is_commit()}")
        if not isinstance(of_groups, pa.Table) or not stored.fits_driver:
            self._tasks.append_load(self._in_spark(final), decoding)
        else:
            # Each cell of a group is one of these records. So they fit too, even if those of commits do not.
            self._driver.append_load(of_groups, final if isinstance(final, pa.Table) else final.toArrow(), decoding)
        self._book.note_decoded({log[0]: span.end for log, span in spans.items()})
        self._ahead -= set(partitions)

    def _in_spark(self, cells: DataFrame | pa.Table) -> DataFrame:
        if isinstance(cells, DataFrame):
            return cells
        return self._writer.spark.createDataFrame(cells.filter(belongs_to(RECORDS, cells)))

    def _known_step_ends(self, partition: int) -> frozenset[int]:
        """Return the offsets at which a killed job ended a step."""
        return frozenset(self._written[table].get(partition, -1) for table in DECODED_TABLES)

    def _until_complete_steps(self, spans: Spans, ends: Mapping[int, int], of_groups: Records) -> Spans:
        """Return the spans without the last step of each log, if Spark may have cut that step."""
        offsets = sum(end - self._book.rows[number].applied for number, end in ends.items())
        if offsets < self._most_at_once - len(ends):  # Spark takes a share of each partition, rounded
            return spans
        if not isinstance(of_groups, pa.Table):
            return until_complete_steps(spans, stored_tails(self._tables, spans))
        unstored, stored = spans_where(spans, is_stored=False), spans_where(spans, is_stored=True)
        return until_complete_steps(spans, placed(of_groups, unstored), stored_tails(self._tables, stored))
