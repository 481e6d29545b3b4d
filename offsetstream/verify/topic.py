"""Compare the history with the topic: every record must be in the tables, every row was once a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.records import LogRecord, read_log
from offsetstream.tables.arrow_rows import partition_numbers, timestamps
from offsetstream.tables.filters import Filters
from offsetstream.tables.lease import read_lease
from offsetstream.tables.ledger import read_in_pieces
from offsetstream.tables.names import OFFSETS_PARTITIONS, OWNED, RECORD_TABLES
from offsetstream.tables.record_rows import belongs_to, decode_on_driver, with_history_columns
from offsetstream.tables.schema import HISTORY_DAY, load_schema
from offsetstream.tables.small_tables import read_rows, rows_per_partition
from offsetstream.tables.store import Snapshot, Store
from offsetstream.verify.difference import ROW, TOPIC, Difference
from offsetstream.verify.doubled_rows import some_at_a_time
from offsetstream.verify.filtered import filtered_records, filters_of
from offsetstream.verify.reconcile import Gathered, Reconciled, Records, reconcile

_NAMES = ("offsets_partition", "log_id", "record_offset")
# Kinds of errors, each with its column and values in a difference.
_WRONG = {"missing": (ROW, False, True), "beyond": (ROW, True, False), "changed": ("content", "one", "another")}
_NO_OFFSET = np.iinfo(np.int64).max
_NAMED = 20  # differences reported per kind, table and step; the others are only counted


@dataclass
class Reconciliation:
    """The result of a comparison with the topic: counts of records by outcome, and the differences.

    `not_compared`: offsets partitions that were not compared, with the reason.
    """

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)
    not_compared: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        told = (
            "{both:,} in the topic and in the tables, {superseded:,} superseded in the topic, {thinned:,} thinned by "
            "retention, {missing:,} only in the topic, {beyond:,} only in the tables, {changed:,} changed"
        )
        if self.counts["filtered"]:
            told += ", {filtered:,} more skipped by the filters"
        if self.counts["unclaimed"]:
            told += ", {unclaimed:,} from before history_complete_from that the topic lost while no job ran"
        counts = {name: self.counts[name] for name in ("both", "superseded", "thinned", "missing", "beyond", "changed")}
        total = sum(counts.values()) - counts["changed"] + self.counts["unclaimed"]
        others = {name: self.counts[name] for name in ("filtered", "unclaimed")}
        return f"{total:,} records reconciled: {told.format(**counts, **others)}"


class TopicReader:
    """Compares the history tables with the topic, several partitions at a time."""

    def __init__(
        self, cluster: Cluster, properties: Mapping[str, str], tables: Store, say: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._properties = properties
        self._tables = tables
        self._say = say

    def reconcile(self) -> Reconciliation:
        """Read the complete topic with read_committed and compare. Memory holds several partitions at a time."""
        result, rows = Reconciliation(), Counter[int]()
        for name in RECORD_TABLES:
            rows.update(rows_per_partition(self._tables, name))
        every = sorted(self._cluster.topic_partitions())
        done = 0
        for partitions in some_at_a_time({number: rows[number] for number in every}):
            found = self._compare(partitions)
            if found.differences:  # the job, compaction or retention may be running: keep only lasting differences
                found = _in_both(found, self._compare(partitions))
            result.counts.update(found.counts)
            result.differences += found.differences
            result.not_compared |= found.not_compared
            done += len(partitions)
            self._say(f"{done} of {len(every)} offsets partitions compared with the topic")
        return result

    def _compare(self, partitions: Collection[int]) -> Reconciliation:
        result = Reconciliation()
        books = {row["offsets_partition"]: row for row in read_rows(self._tables.open(OFFSETS_PARTITIONS))}
        for number in partitions:
            if reason := _why_not_compared(books.get(number)):
                result.not_compared[number] = reason
        books = {number: books[number] for number in partitions if number not in result.not_compared}
        if not books:
            return result
        applied = {number: row["next_offset"] for number, row in books.items()}
        log_ids = {number: row["log_id"] for number, row in books.items()}
        claims = {number: row["history_complete_from"] for number, row in books.items()}
        starts = {number: end.log_start_offset for number, end in self._cluster.partition_ends(books).items()}
        log, filtered = self._read_log(log_ids, filters_of(books))  # before the rows, so that all of them are there
        result.counts["filtered"] += filtered
        for name, of_log in log.items():
            has_cells = bool(load_schema(name).cell)
            table = self._tables.open(name)
            rows = _read_rows(table, log_ids)
            lease = read_lease(self._tables)  # after the rows: retention notes there what it will delete before it does
            kept_from = None if lease is None else lease.history_kept_from
            below = {} if kept_from is None else thinned_below(table, log_ids, kept_from.date())
            found = reconcile(rows, of_log, applied, starts, below, claims, has_cells=has_cells)
            _note(result, name, found, log_ids)
        return result

    def _read_log(
        self, log_ids: Mapping[int, int], filters: Mapping[Filters, list[int]]
    ) -> tuple[dict[str, Records], int]:
        """Return the records that each table must have, and the number of filtered records."""
        filtered = 0
        gathered = {name: Gathered(load_schema(name)) for name in RECORD_TABLES}
        for records in read_log(self._cluster.bootstrap_server, self._properties, log_ids):
            if not records:
                continue
            decoded = decode_on_driver(raw_records(records))
            if filters:
                kept = decoded.filter(pc.invert(filtered_records(decoded, filters)))
                filtered, decoded = filtered + decoded.num_rows - kept.num_rows, kept
            decoded = decoded.append_column("log_id", partition_numbers(decoded, log_ids, 0))
            for name, of_table in gathered.items():
                mine = decoded.filter(belongs_to(name, decoded))
                if mine.num_rows:
                    of_table.add(with_history_columns(name, mine))
        return {name: of_table.records() for name, of_table in gathered.items()}, filtered


def _read_rows(table: Snapshot, log_ids: Mapping[int, int]) -> Records:
    schema = load_schema(table.name)
    gathered = Gathered(schema)
    query = f"SELECT {', '.join(schema.column_names)} FROM rows WHERE {_is_of(log_ids)}"  # noqa: S608 - our own SQL
    for rows in read_in_pieces(table.query(query), schema):
        gathered.add(rows.filter(pc.equal(rows["log_id"], partition_numbers(rows, log_ids, -1))))
    return gathered.records()


def thinned_below(table: Snapshot, log_ids: Mapping[int, int], kept_from: date) -> dict[int, int]:
    """Return, for each partition, the offset below which retention may have deleted records of its log.

    That is the first offset of a day that is kept completely, since records come in order of offset. If a clock went
    back, later records may belong to an earlier day; the offset is then after them.
    """
    is_kept = f"{HISTORY_DAY} >= DATE '{kept_from}'"
    query = (
        "SELECT offsets_partition AS p, log_id, min(record_offset) FILTER (WHERE is_kept) AS kept, "  # noqa: S608
        "coalesce(max(record_offset) FILTER (WHERE NOT is_kept), -1) AS before "
        f"FROM (SELECT *, {is_kept} AS is_kept FROM rows WHERE {_is_of(log_ids)}) r GROUP BY p, log_id"
    )
    found = table.query(query).read_all().to_pylist()
    below = dict.fromkeys(log_ids, _NO_OFFSET)  # all rows may be from earlier days
    for row in found:
        if row["log_id"] == log_ids[row["p"]] and row["kept"] is not None:
            below[row["p"]] = max(row["kept"], row["before"] + 1)
    return below


def _is_of(partitions: Iterable[int]) -> str:
    return f"offsets_partition IN ({', '.join(map(str, partitions))})"


def _why_not_compared(book: Mapping[str, object] | None) -> str | None:
    if book is None or book["load_state"] != OWNED:
        return "it is not loaded"
    if book["history_complete_from"] is None:
        return "the job keeps no history of it"
    return None


def raw_records(records: list[LogRecord]) -> pa.Table:
    """Return records of the log as a table, to be decoded."""
    return pa.table(
        {
            "offsets_partition": pa.array([each.partition for each in records], pa.int32()),
            "record_offset": pa.array([each.offset for each in records], pa.int64()),
            "record_timestamp": timestamps([each.timestamp_ms for each in records]),
            "key": pa.array([each.key for each in records], pa.binary()),
            "value": pa.array([each.value for each in records], pa.binary()),
        }
    )


def _note(result: Reconciliation, name: str, found: Reconciled, log_ids: Mapping[int, int]) -> None:
    result.counts.update({name: getattr(found, name) for name in ("both", "superseded", "unclaimed", "thinned")})
    for kind, (column, in_tables, other) in _WRONG.items():
        records: Records = getattr(found, kind)
        result.counts[kind] += len(records)
        for number, (partition, offset) in enumerate(records.places()):
            if number == _NAMED:
                break
            place = (partition, log_ids[partition], offset)
            result.differences.append(Difference(name, _NAMES, place, column, in_tables, other, TOPIC))


def _in_both(first: Reconciliation, second: Reconciliation) -> Reconciliation:
    """Return the second comparison with only the differences that the first one also has: others were temporary."""
    before = set(first.differences)
    kept = [each for each in second.differences if each in before]
    counts = second.counts if kept else second.counts | dict.fromkeys(_WRONG, 0)
    return Reconciliation(Counter(counts), kept, second.not_compared)
