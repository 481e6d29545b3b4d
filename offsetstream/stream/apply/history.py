"""The history tables: every record that was read, once, in log order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame

from offsetstream.stream.apply.log_pass import CommitHistory, LogPass
from offsetstream.stream.state import columns
from offsetstream.stream.state.columns import partition_number
from offsetstream.stream.state.size import Records, by_partition
from offsetstream.tables.arrow_rows import append_rows, partition_numbers
from offsetstream.tables.files import TaskWriter, append_files
from offsetstream.tables.ledger import count_between, count_uncounted, uncounted, write_entries
from offsetstream.tables.names import COMMITS, RECORD_TABLES, RECORDS, UNDECODABLE
from offsetstream.tables.parallel import Step, in_parallel
from offsetstream.tables.record_rows import RENAMED, belongs_to, with_history_columns
from offsetstream.tables.tally import Entry, Log, Tally
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import TableWriter


def history_positions(greatest: Mapping[Log, int], log_ids: Mapping[int, int]) -> dict[int, int]:
    """Return the greatest record offset by partition, for the current logs."""
    return {partition: offset for (partition, log), offset in greatest.items() if log == log_ids.get(partition, 0)}


class History:
    """Append each decoded record once to its history table.

    `written`: for each table, the greatest record offset of each partition when the job started. The job before may
    have ended between an append and the end of its batch. `kept`: the tables that are written; other records are
    skipped. `above`: no record below this offset is appended.
    """

    def __init__(
        self,
        writer: TableWriter,
        log_ids: Mapping[int, int],
        written: Mapping[str, Mapping[int, int]],
        kept: Collection[str] = RECORD_TABLES,
        above: int = 0,
    ) -> None:
        self._writer = writer
        self._log_ids = log_ids
        self._written = written
        self._kept = kept
        self._above = above

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
        return cls(writer, log_ids, written, kept, above)

    @property
    def recorded(self) -> Mapping[int, int]:
        """The greatest offset of a group record by partition, at the start of the job."""
        return self._written.get(RECORDS, {})

    @property
    def keeps_records(self) -> bool:
        """Whether decodable records are written."""
        return len(self._kept) > 1

    def lacks(
        self,
        decoded: Records,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        written_commits: Mapping[int, int] | None = None,
    ) -> set[int]:
        """Return the partitions in which the tables lack some of the decoded records, and will not get them.

        `written_commits`: `LogPass.written`, if `decoded` has no commits because tasks write these.

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
                stored = count_between(self._writer.tables, table, ranges)
                if table == COMMITS and written_commits is not None:
                    read = written_commits
                else:
                    below = _below(table, decoded, {log[0]: end for log, (_, end) in ranges.items()})
                    read = {number: share.records for number, share in by_partition(below).items()}
                found |= {log[0] for log in ranges if read.get(log[0], 0) > stored.get(log, 0)}
        return found

    def append_uncounted(self, decoded: pa.Table, batch: BatchId, tables: Collection[str] = RECORD_TABLES) -> Step:
        """Append the decoded records, and return the step that counts them.

        The step may run in parallel to what comes next. If the job dies before it, the next job counts the rows.
        """
        kept = [table for table in tables if table in self._kept]
        return partial(write_entries, self._writer.tables, self._append_by_driver(kept, decoded, batch), batch)

    def _append_by_spark(self, tables: Collection[str], decoded: DataFrame, batch: BatchId) -> None:
        steps = [partial(self._append_frame, table, decoded, batch) for table in tables]
        in_parallel(steps, inheritable_thread_target(self._writer.spark))

    def _append_frame(self, table: str, decoded: DataFrame, batch: BatchId) -> None:
        new = f"record_offset > {partition_number(self._written.get(table, {}), -1)}"
        rows = _rows_of(table, decoded).where(new)
        self._writer.append(table, rows.selectExpr("*", f"{partition_number(self._log_ids, 0)} AS log_id"), batch)

    def _append_by_driver(self, tables: Collection[str], decoded: pa.Table, batch: BatchId) -> dict[str, list[Entry]]:
        """Append the records, and return their entries for the ledger."""
        placed = decoded.append_column("log_id", partition_numbers(decoded, self._log_ids, 0))
        tallies = {table: Tally(table) for table in tables}
        in_parallel([partial(self._append_rows, table, placed, batch, tally) for table, tally in tallies.items()])
        return {table: tally.entries for table, tally in tallies.items()}

    def _append_rows(self, table: str, decoded: pa.Table, batch: BatchId, tally: Tally) -> None:
        written = partition_numbers(decoded, self._written.get(table, {}), -1)
        is_new = pc.and_(belongs_to(table, decoded), pc.greater(decoded["record_offset"], written))
        rows = append_rows(self._writer.tables, table, with_history_columns(table, decoded.filter(is_new)), batch)
        if rows is not None:
            tally.add(rows)

    def of_commits(self, batch: BatchId) -> CommitHistory:
        """Return where a pass over the log writes the commits that are not there yet."""
        return CommitHistory(self._task_writer(batch), dict(self._log_ids), dict(self._written.get(COMMITS, {})))

    def _task_writer(self, batch: BatchId) -> TaskWriter | None:
        return self._writer.tables.task_writer(COMMITS, batch, datetime.now(UTC).date())

    def append_passed(self, passed: LogPass, others: Records, batch: BatchId) -> Step:
        """Append the results of a pass over the log, and return the step that counts them, as `append_uncounted` does.

        If tasks can write files, the commits are in files already.
        `others`: the other records of the pass, on the driver or in Spark.
        """
        append_files(self._writer.tables, COMMITS, passed.files, batch)
        entries = [Entry(**each) for new in passed.files for each in new.counted]
        counted = {COMMITS: entries} if entries else {}
        # Undecodable records need a single append: after a crash between two, the first one would hide the second.
        if isinstance(others, pa.Table):
            counted = self._append_by_driver(self._kept, others, batch) | counted
        else:
            names = RECORD_TABLES[1 if self._task_writer(batch) else 0 :]
            kept = [name for name in names if name in self._kept]
            self._append_by_spark(kept, others, batch)
            counted = uncounted(self._writer.tables, kept, self._above)[1] | counted
        return partial(write_entries, self._writer.tables, counted, batch)  # all at once: a batch does it once


def _below(table: str, decoded: Records, ends: Mapping[int, int]) -> Records:
    if isinstance(decoded, DataFrame):
        return _rows_of(table, decoded).where(f"record_offset < {partition_number(ends, 0)}")
    is_below = pc.less(decoded["record_offset"], partition_numbers(decoded, ends, 0))
    return decoded.filter(pc.and_(belongs_to(table, decoded), is_below))


def _rows_of(table: str, decoded: DataFrame) -> DataFrame:
    return columns.renamed(decoded.where(columns.is_of(table)), RENAMED[table])
