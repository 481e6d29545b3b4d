"""The ledger of the history: how many rows the job wrote to each history table, and their checksums.

The topic is compacted, so it cannot show which rows a history has lost. The ledger can. Records of a log enter a
history in the order of their offsets. So for each log, all rows up to the ledger's last offset are counted, and no row
above it. Rows that a job did not count before it died are counted by the next one (`count_uncounted`).

Past days are summed up, and corrected for rows that retention removes. Two tables cannot be written in one commit. So
retention first writes a note to the ledger: an entry with a number, for the rows that it will remove. It then removes
the rows in a commit to the history that carries the same number as a transaction. A note is valid only when the history
has its number. Retention may die at any line, or run while another retention runs. So whoever finds a note that is not
valid first makes sure that its author can no longer commit, and then deletes the note (`apply_notes`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from random import randrange
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetstream.errors import ConflictError
from offsetstream.tables.names import LEDGER
from offsetstream.tables.rows import conform
from offsetstream.tables.schema import HISTORY_DAY, TableSchema, load_schema
from offsetstream.tables.sql import sql_text
from offsetstream.tables.store import Snapshot, Store, Transaction
from offsetstream.tables.tally import BATCH, DAY, LOG, Entry, Log, Tally, by_day, grouped
from offsetstream.tables.transaction import BatchId, again_on_conflict, is_done, transaction_of

_PIECE_ROWS, _PIECE_BYTES = 100_000, 64 << 20
_RANGES = 100  # per query
_NO_OFFSET = np.iinfo(np.int64).max


def read_entries(ledger: Snapshot, history: str, where: str = "true", *, each_batch: bool = False) -> list[Entry]:
    """Return the ledger's entries of a history table: by log and day, with `each_batch` also by batch."""
    query = f"SELECT * FROM rows WHERE history = {sql_text(history)} AND {where}"  # noqa: S608 - our own SQL
    rows = ledger.query(query).read_all()
    at = rows.column_names.index("checksum")
    rows = rows.set_column(at, "checksum", rows["checksum"].cast(pa.uint64()))
    return grouped(rows, BATCH if each_batch else DAY)


def last_offsets(ledger: Snapshot, history: str) -> dict[Log, int]:
    """Return the greatest counted offset of each log."""
    found = ledger.query(_last_offsets_sql(history, "rows")).read_all().to_pylist()
    return {(row["p"], row["l"]): row["last"] for row in found}


def _last_offsets_sql(history: str, ledger: str) -> str:
    return (
        f"SELECT offsets_partition AS p, log_id AS l, max(last_record_offset) AS last FROM {ledger} "  # noqa: S608 - our own SQL
        f"WHERE history = {sql_text(history)} GROUP BY offsets_partition, log_id"
    )


def count_rows(
    ledger: Snapshot, tables: Store, history: str, where: str = "true", *, once: bool = False
) -> list[Entry]:
    """Count the rows of a history table again, up to the ledger's last offsets. Memory is bounded.

    With `once`, a record that the table has twice counts once; then all rows are in memory.
    """
    columns = ", ".join(f"r.{name}" for name in load_schema(history).column_names)
    query = f"{joined_rows(history, columns)} AND {where}"
    if once:
        place = "offsets_partition, log_id, record_offset"
        nth = f"row_number() OVER (PARTITION BY {place} ORDER BY {place}) AS nth"
        query = f"SELECT {columns} FROM (SELECT *, {nth} FROM ({query}) q) r WHERE nth = 1"  # noqa: S608 - our own SQL
    return _counted(history, tables.open(history).query(query, ledger=ledger))


def joined_rows(history: str, columns: str) -> str:
    """Return the SQL that selects the rows (`r`) of a history that the table `ledger` has counted."""
    return (
        # The small side comes first, because the join keeps that one in memory.
        f"SELECT {columns} FROM ({_last_offsets_sql(history, 'ledger')}) e JOIN rows r "  # noqa: S608 - our own SQL
        "ON r.offsets_partition = e.p AND r.log_id = e.l WHERE r.record_offset <= e.last"
    )


def write_entries(tables: Store, entries: Mapping[str, Collection[Entry]], batch: BatchId) -> None:
    """Append entries, given by history table, once per batch."""
    if any(entries.values()):
        _append([row_of(history, entry) for history, found in entries.items() for entry in found], tables, batch)


@again_on_conflict
def _append(rows: list[dict[str, Any]], tables: Store, batch: BatchId) -> None:
    table = tables.open(LEDGER)
    if not is_done(table, batch):
        data = pa.Table.from_pylist(rows, schema=load_schema(LEDGER).arrow)
        table.append([data], transaction_of(table, batch))


def count_uncounted(tables: Store, histories: Collection[str], above: int, batch: BatchId) -> dict[str, dict[Log, int]]:
    """Count the rows that the ledger has not counted yet; return the greatest offset of each log, by history table.

    If the ledger has any entry of a table, only rows with an offset of at least `above` are read.
    """
    ledger = tables.open(LEDGER)
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


def _count_above(tables: Store, history: str, offsets: Mapping[Log, int]) -> list[Entry]:
    partitions = ", ".join(str(partition) for partition in sorted({partition for partition, _ in offsets}))
    columns = ", ".join(load_schema(history).column_names)
    query = (
        f"SELECT {columns} FROM rows WHERE offsets_partition IN ({partitions}) "  # noqa: S608 - our own SQL
        f"AND record_offset > {min(offsets.values())}"
    )
    return _counted(history, tables.open(history).query(query), offsets)


def _counted(history: str, found: pa.RecordBatchReader, above: Mapping[Log, int] | None = None) -> list[Entry]:
    tally = Tally(history)
    for rows in read_in_pieces(found, load_schema(history)):
        if above is None:
            tally.add(rows)
            continue
        is_above = rows["record_offset"].to_numpy() > values_by_log(rows, above, _NO_OFFSET)
        tally.add(rows.filter(pa.array(is_above)))
    return tally.entries


def read_in_pieces(found: pa.RecordBatchReader, schema: TableSchema) -> Iterator[pa.Table]:
    """Yield the result of a query for a table's columns, in pieces of about 100,000 rows or 64 MiB."""
    pieces, count, size = list[pa.Table](), 0, 0
    for batch in found:
        piece = conform(pa.Table.from_batches([batch]), schema)  # pyarrow before 24 has no size for text views
        pieces.append(piece)
        count, size = count + piece.num_rows, size + piece.nbytes
        if count > _PIECE_ROWS or size > _PIECE_BYTES:
            yield pa.concat_tables(pieces)
            pieces, count, size = [], 0, 0
    if pieces:
        yield pa.concat_tables(pieces)


def values_by_log(rows: pa.Table, by_log: Mapping[Log, int], default: int) -> npt.NDArray[np.int64]:
    """Return for each row the value of its log in `by_log`; `default` if there is none."""
    logs = np.array([(partition << 32 | log, number) for (partition, log), number in by_log.items()], np.int64)
    logs = np.concatenate([logs.reshape(-1, 2), [[_NO_OFFSET, default]]])
    logs = logs[np.argsort(logs[:, 0])]
    partitions, log_ids = (rows[name].fill_null(-1).to_numpy().astype(np.int64) for name in LOG)
    own = partitions << np.int64(32) | log_ids
    at = np.searchsorted(logs[:, 0], own)
    return np.where(logs[at, 0] == own, logs[at, 1], default)


def greatest_offsets(tables: Store, history: str, above: int = 0) -> dict[Log, int]:
    """Return the greatest record offset of each log in a history table; offsets below `above` are not read."""
    query = (
        "SELECT offsets_partition, log_id, max(record_offset) AS last FROM rows "  # noqa: S608 - our own SQL
        f"WHERE record_offset >= {above} GROUP BY offsets_partition, log_id"
    )
    found = tables.open(history).query(query).read_all().to_pylist()
    return {(row["offsets_partition"], row["log_id"]): row["last"] for row in found}


def count_between(tables: Store, history: str, ranges: Mapping[Log, tuple[int, int]]) -> dict[Log, int]:
    """Return how many rows a history table has of each log within a range of offsets (end exclusive)."""
    table = tables.open(history)
    found: dict[Log, int] = {}
    conditions = [
        f"(offsets_partition = {partition} AND log_id = {log} AND record_offset >= {start} AND record_offset < {end})"
        for (partition, log), (start, end) in ranges.items()
    ]
    for at in range(0, len(conditions), _RANGES):
        query = (
            "SELECT offsets_partition, log_id, count(*) AS rows FROM rows "  # noqa: S608 - our own SQL
            f"WHERE {' OR '.join(conditions[at : at + _RANGES])} GROUP BY offsets_partition, log_id"
        )
        for row in table.query(query).read_all().to_pylist():
            found[row["offsets_partition"], row["log_id"]] = row["rows"]
    return found


@again_on_conflict
def delete_entries(tables: Store, histories: Collection[str]) -> None:
    """Delete the entries of history tables from the ledger, after someone deleted these tables."""
    if histories:
        names = ", ".join(map(sql_text, sorted(histories)))
        tables.open(LEDGER).replace(f"history IN ({names})", [])


def row_of(history: str, entry: Entry) -> dict[str, Any]:
    """Return an entry of a history table as a row of the ledger."""
    values = {name: value for name, value in vars(entry).items() if name != "day"}
    return values | {"history": history, HISTORY_DAY: date.fromisoformat(entry.day)}


_IS_NOTE = "batch_id < -1"  # a note of retention: the batch id is its number, negated
_NUMBERS = 1 << 40  # each retention of a day picks a random number up to this


def sum_up_days(tables: Store, today: date) -> None:
    """Replace the entries of each day before today by their sums, so that the ledger stays small."""
    ledger = tables.open(LEDGER)
    for day in _days(ledger, f"{HISTORY_DAY} < DATE '{today}' AND batch_id IS NOT NULL"):
        _sum_up_day(tables, day)


@again_on_conflict
def _sum_up_day(tables: Store, day: str) -> None:
    ledger = tables.open(LEDGER)
    if day not in _days(ledger, _IS_NOTE):  # else a retention works on the day, or the next one will
        _overwrite_day(ledger, day, _entries_of_day(ledger, day))


def note_thinned(tables: Store, history: Snapshot, day: str, kept: pa.Table) -> Transaction:
    """Note in the ledger which rows a day of a history loses when only the `kept` rows remain.

    The caller must remove the rows with the returned transaction, from the table as it was opened. If the table had
    too few or too many rows before, the same difference remains afterwards: the note does not hide it.
    ConflictError if another retention is running.
    """
    ledger, number = tables.open(LEDGER), _number(history) + randrange(2, _NUMBERS)  # noqa: S311
    if _days(ledger, _IS_NOTE):
        raise ConflictError("another retention is thinning the history")
    entries = _entries_of_day(ledger, day)
    name = history.name
    if name in entries:
        tally = Tally(name)
        tally.add(_counted_rows(kept, last_offsets(ledger, name)))
        stored = count_rows(ledger, tables, name, _is_day(day, "r."), once=True)
        after, before = _by_log(tally.entries), _by_log(stored)
        notes = [_note(each, before.get(each.log), after.get(each.log), number) for each in entries[name]]
        noted = entries | {name: [*entries[name], *notes]}
        _overwrite_day(ledger, day, noted, Transaction(_app(LEDGER), number))
    return Transaction(_app(name), number)


@again_on_conflict
def apply_notes(tables: Store) -> None:
    """Apply the valid notes of retention to the ledger and delete the others, whose authors can no longer commit."""
    noted = _histories_with_notes(tables.open(LEDGER))
    # Open the histories first: a note is written before the commit with its number.
    histories = {history: tables.open(history) for history in noted}
    ledger = tables.open(LEDGER)
    for history in noted:
        if _days(ledger, f"history = '{history}' AND NOT {valid_entries(histories[history])}"):
            histories[history].commit_nothing(Transaction(_app(history), _number(histories[history]) + 1))
    for day in _days(ledger, _IS_NOTE):
        found = {
            name: read_entries(ledger, name, f"{_is_day(day)} AND {valid_entries(table)}")
            for name, table in histories.items()
        }
        remaining = {name: [each for each in entries if each.rows or each.checksum] for name, entries in found.items()}
        _overwrite_day(ledger, day, _entries_of_day(ledger, day) | remaining)


def valid_entries(history: Snapshot) -> str:
    """Return the SQL condition for the ledger's valid entries of a history: a note only after its rows are removed."""
    return f"(batch_id IS NULL OR NOT {_IS_NOTE} OR batch_id = {-_number(history)})"


def _histories_with_notes(ledger: Snapshot) -> list[str]:
    found = ledger.query(f"SELECT DISTINCT history FROM rows WHERE {_IS_NOTE}").read_all()  # noqa: S608 - our own SQL
    names: list[str] = sorted(found["history"].to_pylist())
    return names


def _number(table: Snapshot) -> int:
    return table.transaction_version(_app(table.name)) or 0


def _app(table: str) -> str:
    return f"offsetstream/{table}/retention"


def _note(entry: Entry, before: Entry | None, after: Entry | None, number: int) -> Entry:
    nothing = replace(entry, rows=0, checksum=0)
    removed = nothing - (before or nothing) + (after or nothing)
    return replace(removed, batch_id=-number, last_record_offset=-number)  # no record has this offset; it is in the key


def _counted_rows(rows: pa.Table, last: Mapping[Log, int]) -> pa.Table:
    return rows.filter(pa.array(rows["record_offset"].to_numpy() <= values_by_log(rows, last, -1)))


def _by_log(entries: Iterable[Entry]) -> dict[Log, Entry]:
    """Add up entries of one day by log."""
    return {log: each for (log, _), each in by_day(entries).items()}


def _is_day(day: str, prefix: str = "") -> str:
    return f"{prefix}{HISTORY_DAY} = DATE '{day}'"


def _days(ledger: Snapshot, where: str) -> list[str]:
    found = ledger.query(f"SELECT DISTINCT {HISTORY_DAY} AS day FROM rows WHERE {where}").read_all()  # noqa: S608
    return sorted(map(str, found["day"].to_pylist()))


def _entries_of_day(ledger: Snapshot, day: str) -> dict[str, list[Entry]]:
    found = ledger.query(f"SELECT DISTINCT history FROM rows WHERE {_is_day(day)}").read_all()  # noqa: S608 - our own
    names = found["history"].to_pylist()
    return {name: read_entries(ledger, name, _is_day(day)) for name in names}


def _overwrite_day(
    ledger: Snapshot, day: str, entries: Mapping[str, Iterable[Entry]], *transactions: Transaction
) -> None:
    # The entries were read from this version of the table: a write in between makes this commit fail.
    rows = [row_of(history, entry) for history, found in entries.items() for entry in found]
    data = pa.Table.from_pylist(rows, schema=load_schema(LEDGER).arrow)
    ledger.replace(_is_day(day), [data], *transactions)
