"""Logs that were written anew behind the same offsets, and have grown past what was applied: their ends tell nothing.

A recreated topic has another id. After an unclean election, which cuts a log, the leader epoch is higher: so after each
rise the last record that the tables have of a partition is read again, and compared (design, rule 5). One that
compaction removed says nothing against the log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from offsetstream.cluster.log_records import LogRecord
from offsetstream.codec.decoding import decode_records
from offsetstream.stream.partition_book import PartitionBook
from offsetstream.tables.location import TablesLocation
from offsetstream.tables.schema import load_schema

# A job without history has the last records of its cells only.
_TABLES = ("offset_commits", "group_records", "undecodable_records", "committed_offsets", "group_cells")

RecordsAt = Callable[[Mapping[int, int]], Mapping[int, LogRecord | None]]
TopicId = Callable[[], str]


class RewrittenLogs:
    """Finds the logs that were written anew.

    ``known_id`` is the id of the topic that the tables are from, where they know it; ``topic_id`` asks for the present
    one, ``records_at`` for the records at {offsets partition: offset}.
    """

    def __init__(
        self,
        tables: TablesLocation,
        book: PartitionBook,
        known_id: str | None,
        topic_id: TopicId,
        records_at: RecordsAt,
    ) -> None:
        self._tables = tables
        self._book = book
        self._known_id = known_id
        self._topic_id = topic_id
        self._records_at = records_at

    def begin(self) -> list[int]:
        """Begin a new log in the book for each partition that has one, and return these.

        Raises ClusterError where the cluster does not answer; then the next call asks again.
        """
        before, self._known_id = self._known_id, self._topic_id()
        if before not in {None, self._known_id}:
            rewritten = list(self._book.next_offsets)
        else:
            rewritten = self._with_another_record(self._book.epochs_raised)
        for number in rewritten:
            self._book.begin_log(number)
        self._book.take_epochs()
        return rewritten

    def _with_another_record(self, raised: Collection[int]) -> list[int]:
        last = last_records(self._tables, {number: self._book.log_ids[number] for number in raised})
        asked = {number: row["record_offset"] for number, row in last.items() if self._is_in_log(number, row)}
        found = self._records_at(asked) if asked else {}
        return [
            number
            for number, row in last.items()
            if self._is_cut_off(number, row) or not _may_be(row, found.get(number))
        ]

    def _is_cut_off(self, number: int, row: Mapping[str, Any]) -> bool:
        return bool(row["record_offset"] >= self._book.rows[number]["last_stable_offset"])

    def _is_in_log(self, number: int, row: Mapping[str, Any]) -> bool:
        starts_before = self._book.rows[number]["log_start_offset"] <= row["record_offset"]
        return starts_before and not self._is_cut_off(number, row)


def last_records(tables: TablesLocation, log_ids: Mapping[int, int]) -> dict[int, dict[str, Any]]:
    """Return the last record that the tables have of each of these logs: its offset, time and group."""
    last: dict[int, dict[str, Any]] = {}
    for table in _TABLES if log_ids else ():
        for row in _last_rows(tables, table, log_ids):
            before = last.get(row["offsets_partition"])
            if before is None or row["record_offset"] > before["record_offset"]:
                last[row["offsets_partition"]] = row
    return last


def _last_rows(tables: TablesLocation, table: str, log_ids: Mapping[int, int]) -> list[dict[str, Any]]:
    logs = " OR ".join(f"(offsets_partition = {number} AND log_id = {log_id})" for number, log_id in log_ids.items())
    group_id = "group_id" if "group_id" in load_schema(table).column_names else "NULL"
    query = (
        f"SELECT DISTINCT ON (offsets_partition) offsets_partition, record_offset, {group_id} AS group_id, "  # noqa: S608 - our own names and numbers
        f"CAST(record_timestamp AS BIGINT) / 1000 AS timestamp_ms FROM rows WHERE {logs} "
        "ORDER BY offsets_partition, record_offset DESC"
    )
    reader = QueryBuilder().register("rows", DeltaTable(tables.table(table)))
    return list(pa.table(reader.execute(query)).to_pylist())


def _may_be(row: Mapping[str, Any], record: LogRecord | None) -> bool:
    """Tell whether the row may be of the record; always where compaction removed it, or it was not asked for."""
    if record is None:
        return True
    decoded = decode_records(pa.array([record.key], pa.binary()), pa.array([record.value], pa.binary()))
    group_id = decoded["group_id"][0].as_py()
    # The tables have no time of a record whose time no engine can hold.
    return row["timestamp_ms"] in {record.timestamp_ms, None} and group_id in {row["group_id"], None}
