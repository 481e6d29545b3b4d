"""The ledger of the history: how many rows the job gave to each history table, and their checksums.

A compacted topic cannot show what a history has lost; this can. The records of a log come into a history in the order
of their offsets, so all rows up to the last offset that the ledger has of a log are counted, and all above are not yet:
what a job leaves uncounted when it dies, the next one counts (:func:`count_open`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from offsetstream.tables.arrow_rows import conform
from offsetstream.tables.checksum import MODULUS, row_hashes
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.location import TablesLocation
from offsetstream.tables.schema import HISTORY_DAY, load_schema
from offsetstream.tables.small import is_done, sql_text, transaction
from offsetstream.tables.transaction import BatchId

LEDGER = "history_ledger"
Log = tuple[int, int]  # offsets partition and log id
_NO_OFFSET = np.iinfo(np.int64).max
_LOG = ("offsets_partition", "log_id")
_DAY = (*_LOG, HISTORY_DAY)
_BATCH = (*_DAY, "checkpoint_id", "batch_id")


@dataclass(frozen=True)
class Entry:
    """Rows of one log that one batch (None: any) wrote on one day; ``day`` in ISO 8601."""

    offsets_partition: int
    log_id: int
    day: str
    checkpoint_id: int | None
    batch_id: int | None
    rows: int
    checksum: int
    last_record_offset: int

    @property
    def log(self) -> Log:
        """The log whose records the rows are."""
        return self.offsets_partition, self.log_id

    def __add__(self, other: Entry) -> Entry:
        """Return both together."""
        return self._with(other, 1)

    def __sub__(self, other: Entry) -> Entry:
        """Return the rows without the other ones."""
        return self._with(other, -1)

    def _with(self, other: Entry, sign: int) -> Entry:
        last = max(self.last_record_offset, other.last_record_offset)
        checksum = (self.checksum + sign * other.checksum) % MODULUS
        return replace(self, rows=self.rows + sign * other.rows, checksum=checksum, last_record_offset=last)

    @property
    def of_the_day(self) -> Entry:
        """The same, whoever wrote the rows."""
        return replace(self, checkpoint_id=None, batch_id=None)


class Tally:
    """Counts rows of a history as they pass by."""

    def __init__(self, history: str) -> None:
        self._schema = load_schema(history)
        self._found: dict[tuple[Any, ...], Entry] = {}

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Count rows; they have all columns of the history table."""
        rows = pa.table(rows)
        columns = {name: rows[name] for name in _BATCH} | {
            "rows": pa.repeat(pa.scalar(1), rows.num_rows),
            "checksum": pa.array(row_hashes(rows, self._schema)),
            "last_record_offset": rows["record_offset"],
        }
        for entry in _grouped(pa.table(columns), _BATCH):
            key = (entry.log, entry.day, entry.checkpoint_id, entry.batch_id)
            self._found[key] = self._found[key] + entry if key in self._found else entry

    @property
    def entries(self) -> list[Entry]:
        """What was counted, by log, day and batch."""
        return list(self._found.values())


def _grouped(rows: pa.Table, by: tuple[str, ...]) -> list[Entry]:
    sums = [("rows", "sum"), ("checksum", "sum"), ("last_record_offset", "max")]  # of checksums modulo 2^64
    return [
        Entry(
            row["offsets_partition"],
            row["log_id"],
            str(row[HISTORY_DAY]),
            row.get("checkpoint_id"),
            row.get("batch_id"),
            row["rows_sum"],
            row["checksum_sum"] % MODULUS,
            row["last_record_offset_max"],
        )
        for row in rows.group_by(list(by)).aggregate(sums).to_pylist()
    ]


def by_day(entries: Iterable[Entry]) -> dict[tuple[Log, str], Entry]:
    """Add up entries of one history table by log and day."""
    found: dict[tuple[Log, str], Entry] = {}
    for each in entries:
        key = (each.log, each.day)
        found[key] = found[key] + each.of_the_day if key in found else each.of_the_day
    return found


def read_entries(ledger: DeltaTable, history: str, where: str = "true", *, each_batch: bool = False) -> list[Entry]:
    """Return what the ledger has of a history table: of each log and day, or also of each batch."""
    query = f"SELECT * FROM ledger WHERE history = {sql_text(history)} AND {where}"  # noqa: S608 - our own SQL
    rows = pa.table(QueryBuilder().register("ledger", ledger).execute(query))
    at = rows.column_names.index("checksum")
    rows = rows.set_column(at, "checksum", rows["checksum"].cast(pa.uint64()))
    return _grouped(rows, _BATCH if each_batch else _DAY)


def last_offsets(ledger: DeltaTable, history: str) -> dict[Log, int]:
    """Return the greatest offset that is counted of each log."""
    found = pa.table(QueryBuilder().register("ledger", ledger).execute(_last(history))).to_pylist()
    return {(row["p"], row["l"]): row["last"] for row in found}


def _last(history: str) -> str:
    return (
        "SELECT offsets_partition AS p, log_id AS l, max(last_record_offset) AS last FROM ledger "  # noqa: S608 - our own SQL
        f"WHERE history = {sql_text(history)} GROUP BY offsets_partition, log_id"
    )


def count_rows(ledger: DeltaTable, tables: TablesLocation, history: str, where: str = "true") -> list[Entry]:
    """Count the rows of a history table anew, up to where the ledger has counted them; in bounded memory."""
    columns = ", ".join(f"r.{name}" for name in load_schema(history).column_names)
    query = f"{joined_rows(history, columns)} AND {where}"
    reader = QueryBuilder().register("ledger", ledger).register("rows", DeltaTable(tables.table(history)))
    return _counted(history, reader, query)


def joined_rows(history: str, columns: str) -> str:
    """Return the SQL of the ``rows`` r of a history that the ``ledger`` has counted."""
    return (
        f"SELECT {columns} FROM rows r JOIN ({_last(history)}) e ON r.offsets_partition = e.p AND r.log_id = e.l "  # noqa: S608 - our own SQL
        "WHERE r.record_offset <= e.last"
    )


def write_entries(tables: TablesLocation, entries: Mapping[str, Collection[Entry]], batch: BatchId) -> None:
    """Append entries of history tables, by these, once per batch."""
    if any(entries.values()):
        _append([_row(history, each) for history, of_one in entries.items() for each in of_one], tables, batch)


@again_on_conflict
def _append(rows: list[dict[str, Any]], tables: TablesLocation, batch: BatchId) -> None:
    table = DeltaTable(tables.table(LEDGER))
    if not is_done(table, LEDGER, batch):
        data = pa.Table.from_pylist(rows, schema=load_schema(LEDGER).arrow)
        write_deltalake(table, data, mode="append", commit_properties=transaction(table, LEDGER, batch))


def count_open(
    tables: TablesLocation, histories: Iterable[str], above: int, batch: BatchId
) -> dict[str, dict[Log, int]]:
    """Count the rows of history tables that are not in the ledger yet; return the greatest offset of each log.

    Only rows with an offset of at least ``above`` are looked at, where the ledger has anything of the table.
    """
    ledger = DeltaTable(tables.table(LEDGER))
    greatest: dict[str, dict[Log, int]] = {}
    found: dict[str, list[Entry]] = {}
    for history in histories:
        last = last_offsets(ledger, history)
        greatest[history] = greatest_offsets(tables, history, above if last else 0)
        logs = greatest[history].items()
        if is_open := {log: last.get(log, -1) for log, offset in logs if offset > last.get(log, -1)}:
            found[history] = _count_above(tables, history, is_open)
    write_entries(tables, found, batch)
    return greatest


def _count_above(tables: TablesLocation, history: str, offsets: Mapping[Log, int]) -> list[Entry]:
    partitions = ", ".join(str(partition) for partition in sorted({partition for partition, _ in offsets}))
    columns = ", ".join(load_schema(history).column_names)
    query = (
        f"SELECT {columns} FROM rows WHERE offsets_partition IN ({partitions}) "  # noqa: S608 - our own SQL
        f"AND record_offset > {min(offsets.values())}"
    )
    reader = QueryBuilder().register("rows", DeltaTable(tables.table(history)))
    return _counted(history, reader, query, offsets)


def _counted(history: str, reader: QueryBuilder, query: str, above: Mapping[Log, int] | None = None) -> list[Entry]:
    tally = Tally(history)
    for batch in pa.RecordBatchReader.from_stream(reader.execute(query)):
        rows = conform(pa.table(batch), load_schema(history))  # DataFusion gives views of texts
        if above is not None:
            rows = rows.filter(pa.array(rows["record_offset"].to_numpy() > _limits(rows, above, _NO_OFFSET)))
        tally.add(rows)
    return tally.entries


def _limits(rows: pa.Table, of_logs: Mapping[Log, int], default: int) -> npt.NDArray[np.int64]:
    """Return for each row the number of its log; ``default`` where there is none."""
    logs = np.array([(partition << 32 | log, number) for (partition, log), number in of_logs.items()], np.int64)
    logs = np.concatenate([logs.reshape(-1, 2), [[_NO_OFFSET, default]]])
    logs = logs[np.argsort(logs[:, 0])]
    own = rows["offsets_partition"].to_numpy().astype(np.int64) << np.int64(32) | rows["log_id"].to_numpy()
    at = np.searchsorted(logs[:, 0], own)
    return np.where(logs[at, 0] == own, logs[at, 1], default)


def greatest_offsets(tables: TablesLocation, history: str, above: int = 0) -> dict[Log, int]:
    """Return the greatest record offset that a history table has of each log, of those of at least ``above``."""
    reader = QueryBuilder().register("rows", DeltaTable(tables.table(history)))
    query = (
        "SELECT offsets_partition, log_id, max(record_offset) AS last FROM rows "  # noqa: S608 - our own SQL
        f"WHERE record_offset >= {above} GROUP BY offsets_partition, log_id"
    )
    return {
        (row["offsets_partition"], row["log_id"]): row["last"] for row in pa.table(reader.execute(query)).to_pylist()
    }


@again_on_conflict
def forget(tables: TablesLocation, histories: Collection[str]) -> None:
    """Take history tables out of the ledger, whose rows someone deleted with the tables."""
    if histories:
        named = ", ".join(map(sql_text, sorted(histories)))
        DeltaTable(tables.table(LEDGER)).delete(f"history IN ({named})")


def sum_up(tables: TablesLocation, today: date) -> None:
    """Put the entries of each day before today together, so that the ledger stays small."""
    is_past = f"{HISTORY_DAY} < DATE '{today}' AND batch_id IS NOT NULL"
    query = f"SELECT DISTINCT {HISTORY_DAY} AS day FROM ledger WHERE {is_past}"  # noqa: S608 - our own SQL
    found = QueryBuilder().register("ledger", DeltaTable(tables.table(LEDGER))).execute(query)
    for day in sorted(pa.table(found)["day"].to_pylist()):
        _sum_up_day(tables, str(day))


@again_on_conflict
def _sum_up_day(tables: TablesLocation, day: str) -> None:
    ledger = DeltaTable(tables.table(LEDGER))
    _overwrite_day(ledger, day, _of_day(ledger, day))


@again_on_conflict
def correct_day(tables: TablesLocation, history: str, day: str, kept: pa.Table) -> None:
    """Have the ledger say of a day what will be true once only the ``kept`` rows of a history table are left.

    To be called before the others go, and again if they did not. What the table lacked before, or had too much, it
    lacks afterwards: nothing is taken for granted.
    """
    ledger = DeltaTable(tables.table(LEDGER))
    entries = _of_day(ledger, day)
    if history not in entries:
        return
    tally = Tally(history)
    tally.add(_counted_rows(kept, last_offsets(ledger, history)))
    after = _by_log(tally.entries)
    before = _by_log(count_rows(ledger, tables, history, f"r.{HISTORY_DAY} = DATE '{day}'"))
    corrected = (_corrected(each, before.get(each.log), after.get(each.log)) for each in entries[history])
    _overwrite_day(ledger, day, entries | {history: [each for each in corrected if each.rows or each.checksum]})


def _counted_rows(rows: pa.Table, last: Mapping[Log, int]) -> pa.Table:
    return rows.filter(pa.array(rows["record_offset"].to_numpy() <= _limits(rows, last, -1)))


def _by_log(entries: Iterable[Entry]) -> dict[Log, Entry]:
    """Add up entries of one day by log."""
    return {log: each for (log, _), each in by_day(entries).items()}


def _corrected(said: Entry, before: Entry | None, after: Entry | None) -> Entry:
    nothing = replace(said, rows=0, checksum=0)
    before, after = before or nothing, after or nothing
    if (said.rows, said.checksum) == (after.rows, after.checksum):
        return said  # it was corrected before
    return said - before + after


def _of_day(ledger: DeltaTable, day: str) -> dict[str, list[Entry]]:
    is_day = f"{HISTORY_DAY} = DATE '{day}'"
    names = QueryBuilder().register("ledger", ledger).execute(f"SELECT DISTINCT history FROM ledger WHERE {is_day}")  # noqa: S608
    return {name: read_entries(ledger, name, is_day) for name in pa.table(names)["history"].to_pylist()}


def _overwrite_day(ledger: DeltaTable, day: str, entries: Mapping[str, Iterable[Entry]]) -> None:
    # What was read and what is written are one version of the table: a write in between makes this one fail.
    rows = [_row(history, each) for history, of_one in entries.items() for each in of_one]
    data = pa.Table.from_pylist(rows, schema=load_schema(LEDGER).arrow)
    write_deltalake(ledger, data, mode="overwrite", predicate=f"{HISTORY_DAY} = DATE '{day}'")


def _row(history: str, entry: Entry) -> dict[str, Any]:
    values = {name: value for name, value in vars(entry).items() if name != "day"}
    return values | {"history": history, HISTORY_DAY: date.fromisoformat(entry.day)}
