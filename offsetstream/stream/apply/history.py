"""The history tables: every record that was read, once, in log order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.stream.apply.log_pass import HistoryTarget, LogPass
from offsetstream.stream.state.size import by_partition
from offsetstream.tables.arrow_rows import append_rows, partition_numbers
from offsetstream.tables.ledger import count_between, count_uncounted, write_entries
from offsetstream.tables.names import RECORD_TABLES, RECORDS, UNDECODABLE
from offsetstream.tables.parallel import Step, in_parallel
from offsetstream.tables.record_rows import belongs_to, with_history_columns
from offsetstream.tables.tally import Log, Tally
from offsetstream.tables.task_rows import task_writers
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import TableWriter


def history_positions(greatest: Mapping[Log, int], log_ids: Mapping[int, int]) -> dict[int, int]:
    """Return the greatest record offset by partition, for the current logs."""
    return {partition: offset for (partition, log), offset in greatest.items() if log == log_ids.get(partition, 0)}


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
