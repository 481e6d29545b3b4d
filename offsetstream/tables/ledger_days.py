"""The ledger's past days: sums per day, and corrections for rows that retention removes from the history.

Two tables cannot be written in one commit. So retention first writes a note to the ledger: an entry with a number, for
the rows that it will remove. It then removes the rows in a commit to the history that carries the same number as a
transaction. A note is valid only when the history has its number. Retention may die at any line, or run while another
retention runs. So whoever finds a note that is not valid first makes sure that its author can no longer commit, and
then deletes the note.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from random import randrange

import pyarrow as pa

from offsetstream.errors import ConflictError
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.ledger import count_rows, last_offsets, read_entries, row_of, values_by_log
from offsetstream.tables.names import LEDGER
from offsetstream.tables.schema import HISTORY_DAY, load_schema
from offsetstream.tables.store import Snapshot, Store, Transaction
from offsetstream.tables.tally import Entry, Log, Tally, by_day

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
