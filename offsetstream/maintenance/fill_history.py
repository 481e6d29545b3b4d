"""Decode records that were written before the job decoded them, from the history of records.

This works on one log after the other, and on one table after the other, each in its own transaction. So an interrupted
run can continue. A job may run at the same time: it decodes the later records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from offsetstream.group_history.decoding import IN_SPAN, Decoding, Span, Spans, within
from offsetstream.group_history.task_changes import changes_in_tasks, recorded
from offsetstream.maintenance.maintain import require_complete
from offsetstream.tables.names import DECODED_LOGS, DECODED_TABLES, OFFSETS_PARTITIONS, RECORDS, TOPICS
from offsetstream.tables.rows import with_constant_columns
from offsetstream.tables.schema import DELETED, load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.store import Merge, Store, Transaction
from offsetstream.tables.tally import Log
from offsetstream.tables.transaction import NO_BATCH, again_on_conflict
from offsetstream.tables.write import TableWriter, append_from_tasks

_END = (1 << 63) - 1


@dataclass(frozen=True)
class Undecoded:
    """A log of which the records below the offset `end` are not decoded, and their number."""

    log: Log
    end: int
    records: int


def undecoded_logs(tables: Store) -> list[Undecoded]:
    """Return the logs with records that are not decoded and that the job will not decode, sorted."""
    known = {_log(row): row["decoded_from_offset"] for row in read_rows(tables.open(DECODED_LOGS))}
    present = {row["offsets_partition"]: row["log_id"] for row in read_rows(tables.open(OFFSETS_PARTITIONS))}
    query = "SELECT DISTINCT offsets_partition, log_id FROM rows"
    recorded_logs = {_log(row) for row in tables.open(RECORDS).query(query).read_all().to_pylist()}
    # The job decodes the current log of a partition. Of logs that ended before that, `decoded_logs` may have nothing.
    ends = known | {log: _END for log in recorded_logs - known.keys() if log[1] < present.get(log[0], 0)}
    counts = _counts(tables, {log: Span(0, end) for log, end in ends.items() if end})
    return [Undecoded(log, ends[log], count) for log, count in sorted(counts.items())]


def fill_history(spark: SparkSession, tables: Store, say: Callable[[str], None], *, dry_run: bool = False) -> None:
    """Decode these logs in Spark, and report the progress. With `dry_run`, only report what there is to do."""
    require_complete(tables)
    left = undecoded_logs(tables)
    names = {row["topic_id"]: row["topic"] for row in read_rows(tables.open(TOPICS))}
    say(f"Decoding {sum(each.records for each in left):,} group records of {len(left)} logs of offsets partitions")
    for done, each in enumerate([] if dry_run else left, start=1):
        _fill(spark, tables, each, names)
        say(f"{done} of {len(left)} logs decoded (+{each.records:,} records)")


def _fill(spark: SparkSession, tables: Store, undecoded: Undecoded, names: dict[str, str]) -> None:
    partition, log_id = undecoded.log
    writer, spans = TableWriter(spark, tables), {undecoded.log: Span(0, undecoded.end)}
    decoding = Decoding(spans, {table: {} for table in DECODED_TABLES}, NO_BATCH)
    with changes_in_tasks(writer, [recorded(writer.rows(RECORDS), spans)], decoding, names) as found:
        for table, changes in found.items():
            once = Transaction(f"offsetstream/{table}/fill/{partition}/{log_id}", 1)
            append_from_tasks(tables, table, changes, NO_BATCH, once)
    _record_complete(tables, undecoded.log)


@again_on_conflict
def _record_complete(tables: Store, log: Log) -> None:
    schema = load_schema(DECODED_LOGS)
    row = {"offsets_partition": log[0], "log_id": log[1], "decoded_from_offset": 0}
    complete = with_constant_columns(pa.Table.from_pylist([row], schema=schema.arrow), {DELETED: False})
    tables.open(DECODED_LOGS).merge(complete, Merge(schema))


def _counts(tables: Store, spans: Spans) -> dict[Log, int]:
    query = (
        f"SELECT offsets_partition, log_id, count(*) AS n FROM rows WHERE {within(spans, IN_SPAN)} "  # noqa: S608 - our own SQL
        "GROUP BY offsets_partition, log_id"
    )
    found = {_log(row): row["n"] for row in tables.open(RECORDS).query(query).read_all().to_pylist()}
    return {log: found.get(log, 0) for log in spans}


def _log(row: dict[str, int]) -> Log:
    return row["offsets_partition"], row["log_id"]
