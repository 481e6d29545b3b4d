"""Compare the history with the topic: every record must be in the tables, every row was once a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.records import read_log
from offsetstream.tables.filters import Filters
from offsetstream.tables.lease import read_lease
from offsetstream.tables.ledger import read_in_pieces
from offsetstream.tables.names import OFFSETS_PARTITIONS, OWNED, RECORD_TABLES
from offsetstream.tables.rows import belongs_to, decode_on_driver, partition_numbers, timestamps, with_history_columns
from offsetstream.tables.schema import HISTORY_DAY, TableSchema, load_schema
from offsetstream.tables.small_tables import read_rows, rows_per_partition
from offsetstream.tables.sql import in_partitions
from offsetstream.tables.store import Snapshot, Store
from offsetstream.tables.tally import row_hashes
from offsetstream.verify.difference import ROW, TOPIC, Difference
from offsetstream.verify.ledger import some_at_a_time
from offsetstream.verify.sources import filtered_records, filters_of

_NAMES = ("offsets_partition", "log_id", "record_offset")
# Kinds of errors, each with its column and values in a difference.
_WRONG = {"missing": (ROW, False, True), "beyond": (ROW, True, False), "changed": ("content", "one", "another")}
_NO_OFFSET = np.iinfo(np.int64).max
_NAMED = 20  # differences reported per kind, table and step; the others are only counted
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_NO_TIME = np.iinfo(np.int64).max


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
        for decoded, skipped in read_decoded(self._cluster.bootstrap_server, self._properties, log_ids, filters):
            filtered += skipped
            for name, of_table in gathered.items():
                mine = decoded.filter(belongs_to(name, decoded))
                if mine.num_rows:
                    of_table.add(with_history_columns(name, mine))
        return {name: of_table.records() for name, of_table in gathered.items()}, filtered


def _read_rows(table: Snapshot, log_ids: Mapping[int, int]) -> Records:
    schema = load_schema(table.name)
    gathered = Gathered(schema)
    query = f"SELECT {', '.join(schema.column_names)} FROM rows WHERE {in_partitions(list(log_ids))}"  # noqa: S608 - our own SQL
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
        f"FROM (SELECT *, {is_kept} AS is_kept FROM rows WHERE {in_partitions(list(log_ids))}) r GROUP BY p, log_id"
    )
    found = table.query(query).read_all().to_pylist()
    below = dict.fromkeys(log_ids, _NO_OFFSET)  # all rows may be from earlier days
    for row in found:
        if row["log_id"] == log_ids[row["p"]] and row["kept"] is not None:
            below[row["p"]] = max(row["kept"], row["before"] + 1)
    return below


def _why_not_compared(book: Mapping[str, object] | None) -> str | None:
    if book is None or book["load_state"] != OWNED:
        return "it is not loaded"
    if book["history_complete_from"] is None:
        return "the job keeps no history of it"
    return None


def read_decoded(
    bootstrap_server: str,
    properties: Mapping[str, str],
    log_ids: Mapping[int, int],
    filters: Mapping[Filters, list[int]],
) -> Iterator[tuple[pa.Table, int]]:
    """Read the partitions of the topic. Yield decoded records with the ids of their logs, and how many are filtered."""
    for records in read_log(bootstrap_server, properties, list(log_ids)):
        if not records:
            continue
        raw = {
            "offsets_partition": pa.array([each.partition for each in records], pa.int32()),
            "record_offset": pa.array([each.offset for each in records], pa.int64()),
            "record_timestamp": timestamps([each.timestamp_ms for each in records]),
            "key": pa.array([each.key for each in records], pa.binary()),
            "value": pa.array([each.value for each in records], pa.binary()),
        }
        decoded = decode_on_driver(pa.table(raw))
        kept = decoded.filter(pc.invert(filtered_records(decoded, filters))) if filters else decoded
        yield kept.append_column("log_id", partition_numbers(kept, log_ids, 0)), decoded.num_rows - kept.num_rows


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


@dataclass(frozen=True)
class Records:
    """Records as parallel arrays: place, hash of the content, hash of the cell, tombstone flag and time.

    Times are microseconds since 1970. Rows are sorted by `partitions` and `offsets`; a place may occur twice.
    """

    partitions: Numbers
    offsets: Numbers
    hashes: npt.NDArray[np.uint64]
    cells: npt.NDArray[np.uint64]
    tombstones: Flags
    times: Numbers

    def __len__(self) -> int:
        return len(self.offsets)

    def where(self, flags: Flags) -> Records:
        """Return the records whose flag is set."""
        return Records(*(each[flags] for each in vars(self).values()))

    def places(self) -> Iterator[tuple[int, int]]:
        """Yield partition and offset of each."""
        yield from zip(self.partitions.tolist(), self.offsets.tolist(), strict=True)

    def limits(self, of_partition: dict[int, int]) -> Numbers:
        """Return the number of each record's partition; 0 if the partition has none."""
        most = max([*of_partition, int(self.partitions.max(initial=-1))], default=-1)
        numbers = np.zeros(most + 1, np.int64)
        for partition, number in of_partition.items():
            numbers[partition] = number
        return numbers[self.partitions]


@dataclass
class Gathered:
    """Collects rows of a history table, piece by piece."""

    schema: TableSchema
    _pieces: list[tuple[npt.NDArray[np.generic], ...]] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        """Add rows. Columns that the table does not have are ignored."""
        hashes = row_hashes(rows, self.schema)
        cells = row_hashes(rows.select(list(self.schema.cell)), self.schema) if self.schema.cell else hashes
        has_tombstones = "is_tombstone" in rows.column_names and bool(self.schema.cell)
        tombstones = (
            rows["is_tombstone"].fill_null(False).to_numpy() if has_tombstones else np.zeros(rows.num_rows, np.bool_)
        )
        places = (rows[name].to_numpy().astype(np.int64) for name in ("offsets_partition", "record_offset"))
        times = rows["record_timestamp"].cast(pa.int64()).fill_null(_NO_TIME).to_numpy()
        self._pieces.append((*places, hashes, cells, tombstones, times))

    def records(self) -> Records:
        """Return all of them, sorted by place."""
        kinds = (np.int64, np.int64, np.uint64, np.uint64, np.bool_, np.int64)
        empty = tuple(np.zeros(0, kind) for kind in kinds)
        columns = [np.concatenate(each) for each in zip(empty, *self._pieces, strict=True)]
        order = np.lexsort((columns[1], columns[0]))
        return Records(*(each[order] for each in columns))


@dataclass(frozen=True)
class Reconciled:
    """The result for one table. `missing`, `beyond` and `changed` should be empty.

    `both` counts records in the topic and in the table, `superseded` rows that the topic no longer has. `thinned` are
    in the topic only, and retention may have deleted them. `unclaimed` are in the table only, from before the time from
    which the history is complete.
    """

    both: int
    superseded: int
    unclaimed: int
    thinned: int
    missing: Records
    beyond: Records
    changed: Records


def reconcile(
    rows: Records,
    log: Records,
    applied: dict[int, int],
    log_starts: dict[int, int],
    thinned_below: dict[int, int],
    complete_from: Mapping[int, datetime],
    *,
    has_cells: bool,
) -> Reconciled:
    """Compare the rows of a table with the log's records, both below `applied`.

    A row that the log no longer has must be superseded: a newer row or record of its cell exists, or it is a tombstone
    (deleted after delete.retention.ms), or it is before the log's start. Rows without cells count as superseded. For a
    row from before `complete_from`, the superseding record may have come and gone while no job ran.
    Below the offset `thinned_below` of its partition, retention may have deleted a record that the rows lack.
    """
    is_old = log.offsets < log.limits(applied)
    log, tail = log.where(is_old), log.where(~is_old)
    rows = rows.where(rows.offsets < rows.limits(applied))
    ours, theirs = _places(rows), _places(log)
    in_log, in_rows = np.isin(ours, theirs), np.isin(theirs, ours)
    is_passed = ~_is_last_of_cell(rows) | rows.tombstones | np.isin(rows.cells, tail.cells)
    is_passed |= rows.offsets < rows.limits(log_starts)
    if not has_cells:
        is_passed[:] = True
        thinned_below = {}
    claimed_from = rows.limits({number: round(at.timestamp() * 1_000_000) for number, at in complete_from.items()})
    is_unclaimed = ~in_log & ~is_passed & (rows.times < claimed_from)
    may_be_thinned = _may_be_thinned(log, rows, thinned_below)
    at = np.searchsorted(theirs, ours[in_log])
    differs = np.zeros(len(rows), np.bool_)
    differs[in_log] = rows.hashes[in_log] != log.hashes[at]
    return Reconciled(
        both=int(in_log.sum()),
        superseded=int((~in_log & is_passed).sum()),
        unclaimed=int(is_unclaimed.sum()),
        thinned=int((~in_rows & may_be_thinned).sum()),
        missing=log.where(~in_rows & ~may_be_thinned),
        beyond=rows.where(~in_log & ~is_passed & ~is_unclaimed),
        changed=rows.where(differs),
    )


def _is_last_of_cell(rows: Records) -> Flags:
    """Return a flag per record: whether it is the last of its cell. A cell is in one partition."""
    order = np.lexsort((rows.offsets, rows.cells))
    cells = rows.cells[order]
    found = np.ones(len(rows), np.bool_)
    found[order[:-1]] = cells[1:] != cells[:-1]
    return found


def _may_be_thinned(log: Records, rows: Records, below: dict[int, int]) -> Flags:
    """Return a flag per record: whether retention may delete it. It is not the last of its cell there, or a tombstone.

    The superseding record need not be among the rows: it may be a tombstone that retention deleted, too.
    """
    is_there = log.offsets < log.limits(below)
    last = _last_of_cells(rows.where(rows.offsets < rows.limits(below)), log.where(is_there))
    return is_there & (log.tombstones | ~np.isin(_places(log), last))


def _last_of_cells(*records: Records) -> Numbers:
    """Return the place of the last record of each cell."""
    together = Records(*map(np.concatenate, zip(*(vars(each).values() for each in records), strict=True)))
    return _places(together.where(_is_last_of_cell(together)))


def _places(records: Records) -> Numbers:
    return joined(records.partitions, records.offsets)


def joined(partitions: Numbers, offsets: Numbers) -> Numbers:
    """Return each place as one sortable number: 15 bits of partition, 48 bits of offset."""
    places: Numbers = (partitions << np.int64(48)) | offsets
    return places
