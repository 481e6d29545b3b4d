"""The ledger of days that are over: summed up, and corrected where retention takes rows of the history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.ledger import LEDGER, count_rows, last_offsets, limits, read_entries, row_of
from offsetstream.tables.location import TablesLocation
from offsetstream.tables.replace import replace_rows
from offsetstream.tables.schema import HISTORY_DAY, load_schema
from offsetstream.tables.tally import Entry, Log, Tally, by_day


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
    return rows.filter(pa.array(rows["record_offset"].to_numpy() <= limits(rows, last, -1)))


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
    rows = [row_of(history, each) for history, of_one in entries.items() for each in of_one]
    data = pa.Table.from_pylist(rows, schema=load_schema(LEDGER).arrow)
    replace_rows(ledger, f"{HISTORY_DAY} = DATE '{day}'", [data])
