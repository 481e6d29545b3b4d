"""The decoded history, written with each batch and load: what the records that came meant to their groups.

How far it goes is noted in the book (`next_decoded_offset`), which is as far as records are applied, but where a batch
ended within a step: its records wait for the rest of them. What was before the records of a batch the state tables
tell; or, where the history of records may have more than was decoded, since a job was killed or a step waits, that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from offsetstream.group_history.cut_steps import stored_tails, whole_until
from offsetstream.group_history.driver_changes import DriverChangeWriter, placed
from offsetstream.group_history.spans import Decoding, Span, Spans, of_spans
from offsetstream.group_history.spark_changes import SparkChangeWriter
from offsetstream.stream.apply.history import history_positions
from offsetstream.stream.partitions.partition_book import PartitionBook
from offsetstream.stream.state.size import BatchSize, Held, Share
from offsetstream.tables.arrow_rows import merge_rows
from offsetstream.tables.ledger import greatest_offsets
from offsetstream.tables.names import DECODED_LOGS, DECODED_TABLES
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import TableWriter

Records_contra = TypeVar("Records_contra", contravariant=True)


class ChangeWriter(Protocol[Records_contra]):
    """An engine: it appends the changes that decoded records mean to the decoded history.

    Of spans that are stored it asks the history of records; of others the records are given, and of a batch's the
    state tables tell what was before.
    """

    def append_batch(self, records: Records_contra, decoding: Decoding) -> None:
        """Append what the records of a batch changed."""

    def append_load(self, records: Records_contra, cells: Records_contra, decoding: Decoding) -> None:
        """Append what the records of loaded partitions changed; `cells` are what is left of them at the end."""


class DecodedHistory:
    """Appends what changed, each change once; `most_at_once`: of so many offsets Spark makes a batch at most."""

    def __init__(
        self, writer: TableWriter, book: PartitionBook, topic_names: Mapping[str, str], most_at_once: int
    ) -> None:
        self._writer = writer
        self._tables = writer.tables
        self._book = book
        self._driver = DriverChangeWriter(writer.tables, topic_names)
        self._spark: ChangeWriter[DataFrame] = SparkChangeWriter(writer, topic_names)
        self._most_at_once = most_at_once
        self._written: dict[str, dict[int, int]] = {}
        self._recorded: Mapping[int, int] = {}
        self._ahead: set[int] = set()

    def open(self, recorded: Mapping[int, int], batch: BatchId) -> None:
        """Look at what the tables have; where nothing was decoded yet of a log that is applied, begin behind that.

        What came before is filled by `maintain --fill-history`. `recorded`: as `History` has it.
        """
        rows = self._book.rows
        self._begin(
            {n: row.applied for n, row in rows.items() if row.is_owned and row.next_decoded_offset is None}, batch
        )
        above = min((row.next_decoded_offset or 0 for row in rows.values()), default=0)
        greatest = {table: greatest_offsets(self._tables, table, above) for table in DECODED_TABLES}
        self._written = {table: history_positions(found, self._book.log_ids) for table, found in greatest.items()}
        self._recorded = recorded
        decoded = {n: row.next_decoded_offset or 0 for n, row in rows.items()}
        # A step waits, or a job was killed behind the history of records.
        self._ahead = {n for n, end in decoded.items() if end < rows[n].applied or end <= recorded.get(n, -1)}

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
        rows = self._book.rows
        spans: Spans = {
            (number, rows[number].log_id): Span(start, end, number in self._ahead, self._seen_ends(number))
            for number, end in ends.items()
            if (start := rows[number].next_decoded_offset) is not None and end > start
        }
        if size.has_cells or self._ahead & ends.keys():
            spans = self._until_whole_steps(spans, ends, decoded)
            decoding = Decoding(spans, self._written, batch)
            if isinstance(decoded, DataFrame):
                self._spark.append_batch(decoded, decoding)
            else:
                self._driver.append_batch(decoded, decoding)
        self._book.note_decoded({log[0]: span.end for log, span in spans.items()})
        self._ahead = {log[0] for log, span in spans.items() if span.end < ends[log[0]]}

    def append_load(
        self, records: Held, cells: Held, shares: Mapping[int, Share], partitions: Collection[int], batch: BatchId
    ) -> None:
        """Append what the records of loaded partitions changed, which are in the history of records.

        `records` are those that are no commits and `cells` what is left at the end, decoded both. Of a log that the
        tables knew the history of records tells what is not decoded yet.
        """
        rows = self._book.rows
        first = {number: 0 for number in partitions if rows[number].next_decoded_offset is None}
        known = {number for number in partitions if number not in first or number in self._recorded}
        self._begin(first, batch)
        spans = {
            (number, rows[number].log_id): Span(
                start=rows[number].next_decoded_offset or 0,
                end=rows[number].load_end_offset or 0,
                is_stored=number in known,
                steps_end_at=self._seen_ends(number),
                is_closed=number in known,
                closed_at_ms=shares[number].newest_ms if number in shares else None,
            )
            for number in partitions
        }
        decoding = Decoding(spans, self._written, batch)
        stored = self._driver.size_of(decoding.of(is_stored=True))
        if isinstance(records, pa.Table) and isinstance(cells, pa.Table) and stored.is_small(is_load=True):
            self._driver.append_load(records, cells, decoding)
        else:
            self._spark.append_load(self._in_spark(records), self._in_spark(cells), decoding)
        self._book.note_decoded({log[0]: span.end for log, span in spans.items()})
        self._ahead -= set(partitions)

    def _in_spark(self, held: Held) -> DataFrame:
        return held if isinstance(held, DataFrame) else self._writer.spark.createDataFrame(held)

    def _seen_ends(self, partition: int) -> frozenset[int]:
        """Return the offsets at which an earlier job, which was killed, took a step for ended."""
        return frozenset(self._written[table].get(partition, -1) for table in DECODED_TABLES)

    def _until_whole_steps(self, spans: Spans, ends: Mapping[int, int], decoded: Held) -> Spans:
        """Return the spans without the last step of each log, if Spark may have ended the batch within it."""
        offsets = sum(end - self._book.rows[number].applied for number, end in ends.items())
        if offsets < self._most_at_once - len(ends):  # it takes a share of each partition, rounded
            return spans
        if not isinstance(decoded, pa.Table):
            return whole_until(spans, stored_tails(self._tables, spans))
        here, stored = of_spans(spans, is_stored=False), of_spans(spans, is_stored=True)
        return whole_until(spans, placed(decoded, here), stored_tails(self._tables, stored))
