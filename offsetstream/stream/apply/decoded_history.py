"""The decoded history, written with each batch and load: what the records changed in their groups.

The book has its position (`next_decoded_offset`). It equals the applied position, unless a batch ended within a step
(the records of one append): then these records wait for the rest. The state before the records of a batch comes
from the state tables. If the history of records has more than was decoded, because a job was killed or a step waits,
the state comes from that history.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame

from offsetstream.group_history.decoding import Decoding, Span, Spans, spans_where, stored_tails, until_complete_steps
from offsetstream.group_history.driver_changes import DriverChangeWriter, placed
from offsetstream.group_history.task_changes import TaskChangeWriter
from offsetstream.stream.apply.history import history_positions
from offsetstream.stream.decode import is_commit
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.state.size import BatchSize, Records, Share
from offsetstream.tables.arrow_rows import merge_rows
from offsetstream.tables.ledger import greatest_offsets
from offsetstream.tables.names import DECODED_LOGS, DECODED_TABLES, RECORDS
from offsetstream.tables.record_rows import belongs_to
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import TableWriter


class DecodedHistory:
    """Append each change once. `most_at_once`: the maximum number of offsets in a batch of Spark.

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
