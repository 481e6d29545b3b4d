"""The ledger of days that are over: summed up, and corrected where retention takes rows of the history.

Two tables cannot be written at once. So retention first notes in the ledger what it is to take, as an entry of its own
with a number, and takes the rows in a commit that leaves this number with the history. The entry holds only once the
number is there. Who finds one that does not hold shuts out whoever made it, and takes it back: a retention may die, or
run beside others, at any line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from random import randrange

import pyarrow as pa

from offsetstream.errors import ConflictError
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.ledger import count_rows, last_offsets, limits, read_entries, row_of
from offsetstream.tables.names import LEDGER
from offsetstream.tables.schema import HISTORY_DAY, load_schema
from offsetstream.tables.store import Snapshot, Store, Transaction
from offsetstream.tables.tally import Entry, Log, Tally, by_day

_IS_NOTE = "batch_id < -1"  # of what retention is to take: its number below zero
_NUMBERS = 1 << 40  # of which each retention of a day takes another one


def sum_up(tables: Store, today: date) -> None:
    """Put the entries of each day before today together, so that the ledger stays small."""
    ledger = tables.open(LEDGER)
    for day in _days(ledger, f"{HISTORY_DAY} < DATE '{today}' AND batch_id IS NOT NULL"):
        _sum_up_day(tables, day)


@again_on_conflict
def _sum_up_day(tables: Store, day: str) -> None:
    ledger = tables.open(LEDGER)
    if day not in _days(ledger, _IS_NOTE):  # else retention is at it, or the next one will be
        _overwrite_day(ledger, day, _of_day(ledger, day))


def note_thinned(tables: Store, history: Snapshot, day: str, kept: pa.Table) -> Transaction:
    """Note in the ledger what a day of a history loses once only the `kept` rows of it are left.

    They must go with the transaction that is returned, from the table as it was opened. What the table lacked before,
    or had too much, it lacks afterwards: nothing is taken for granted. ConflictError if another retention is at it.
    """
    ledger, number = tables.open(LEDGER), _number(history) + randrange(2, _NUMBERS)  # noqa: S311
    if _days(ledger, _IS_NOTE):
        raise ConflictError("another retention is at the history")
    entries = _of_day(ledger, day)
    name = history.name
    if name in entries:
        tally = Tally(name)
        tally.add(_counted_rows(kept, last_offsets(ledger, name)))
        after, before = _by_log(tally.entries), _by_log(count_rows(ledger, tables, name, _is(day, "r."), once=True))
        notes = [_note(each, before.get(each.log), after.get(each.log), number) for each in entries[name]]
        noted = entries | {name: [*entries[name], *notes]}
        _overwrite_day(ledger, day, noted, Transaction(_app(LEDGER), number))
    return Transaction(_app(name), number)


@again_on_conflict
def settle(tables: Store) -> None:
    """Have the ledger say what is true of what retentions noted in it, and let no other of these come true."""
    noted = _noted(tables.open(LEDGER))
    # The tables first: a note is there before its number is.
    histories = {history: tables.open(history) for history in noted}
    ledger = tables.open(LEDGER)
    for history in noted:
        if _days(ledger, f"history = '{history}' AND NOT {holds(histories[history])}"):
            histories[history].commit_nothing(Transaction(_app(history), _number(histories[history]) + 1))
    for day in _days(ledger, _IS_NOTE):
        found = {
            name: read_entries(ledger, name, f"{_is(day)} AND {holds(table)}") for name, table in histories.items()
        }
        left = {name: [each for each in entries if each.rows or each.checksum] for name, entries in found.items()}
        _overwrite_day(ledger, day, _of_day(ledger, day) | left)


def holds(history: Snapshot) -> str:
    """Return the SQL of the ledger's entries that hold of a history table: a note only once the rows are gone."""
    return f"(batch_id IS NULL OR NOT {_IS_NOTE} OR batch_id = {-_number(history)})"


def _noted(ledger: Snapshot) -> list[str]:
    found = ledger.query(f"SELECT DISTINCT history FROM rows WHERE {_IS_NOTE}").read_all()  # noqa: S608 - our own SQL
    names: list[str] = sorted(found["history"].to_pylist())
    return names


def _number(table: Snapshot) -> int:
    return table.transaction_version(_app(table.name)) or 0


def _app(table: str) -> str:
    return f"offsetstream/{table}/retention"


def _note(said: Entry, before: Entry | None, after: Entry | None, number: int) -> Entry:
    nothing = replace(said, rows=0, checksum=0)
    taken = nothing - (before or nothing) + (after or nothing)
    return replace(taken, batch_id=-number, last_record_offset=-number)  # of no record: it is part of the key


def _counted_rows(rows: pa.Table, last: Mapping[Log, int]) -> pa.Table:
    return rows.filter(pa.array(rows["record_offset"].to_numpy() <= limits(rows, last, -1)))


def _by_log(entries: Iterable[Entry]) -> dict[Log, Entry]:
    """Add up entries of one day by log."""
    return {log: each for (log, _), each in by_day(entries).items()}


def _is(day: str, of: str = "") -> str:
    return f"{of}{HISTORY_DAY} = DATE '{day}'"


def _days(ledger: Snapshot, where: str) -> list[str]:
    found = ledger.query(f"SELECT DISTINCT {HISTORY_DAY} AS day FROM rows WHERE {where}").read_all()  # noqa: S608
    return sorted(map(str, found["day"].to_pylist()))


def _of_day(ledger: Snapshot, day: str) -> dict[str, list[Entry]]:
    found = ledger.query(f"SELECT DISTINCT history FROM rows WHERE {_is(day)}").read_all()  # noqa: S608 - our own SQL
    names = found["history"].to_pylist()
    return {name: read_entries(ledger, name, _is(day)) for name in names}


def _overwrite_day(
    ledger: Snapshot, day: str, entries: Mapping[str, Iterable[Entry]], *transactions: Transaction
) -> None:
    # What was read and what is written are one version of the table: a write in between makes this one fail.
    rows = [row_of(history, each) for history, of_one in entries.items() for each in of_one]
    data = pa.Table.from_pylist(rows, schema=load_schema(LEDGER).arrow)
    ledger.replace(_is(day), [data], *transactions)
