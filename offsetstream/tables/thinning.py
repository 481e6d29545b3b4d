"""Thinning of `end_offsets`: of days that are over the last row of each minute, and later of each hour, is enough.

`previous_sampled_at` of a row that stays is then earlier than the row before it says; it is still true of what it says.
How far this was done the table says by itself: a transaction of each commit has the day. So no day is looked at twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import NamedTuple

import pyarrow as pa

from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.names import END_OFFSETS
from offsetstream.tables.schema import HISTORY_DAY, load_schema
from offsetstream.tables.store import Snapshot, Store, Transaction

MINUTES_FOR = timedelta(days=30)
_HOURS = range(0, 24, 4)  # four at a time, so that no whole day need be in memory


class ThinDay(NamedTuple):
    """A day of which the last row of each minute or hour is to stay."""

    day: date
    unit: str


def due_days(table: Snapshot, today: date) -> list[ThinDay]:
    """Return what is to be thinned, the oldest day first."""
    days = sorted(day for day in table.written_days() if day < today)
    to_hours = [day for day in days if day < today - MINUTES_FOR and day.toordinal() > _done(table, "hour")]
    done = max(_done(table, "minute"), _done(table, "hour"))
    to_minutes = [day for day in days if day not in to_hours and day.toordinal() > done]
    return [*(ThinDay(day, "hour") for day in to_hours), *(ThinDay(day, "minute") for day in to_minutes)]


@again_on_conflict
def thin_day(tables: Store, due: ThinDay, *, dry_run: bool = False) -> int:
    """Thin one day, in one commit, and return how many rows go."""
    table = tables.open(END_OFFSETS)
    found = _count(table, f"SELECT 1 FROM rows WHERE {_of(due.day)}")  # noqa: S608 - our own
    kept = sum(_count(table, _kept(due, hour)) for hour in _HOURS)
    transaction = Transaction(_app(due.unit), due.day.toordinal())
    if not dry_run:
        if kept < found:
            table.replace(_of(due.day), _kept_rows(table, due), transaction)
        else:
            table.commit_nothing(transaction)
    return found - kept


def _kept_rows(table: Snapshot, due: ThinDay) -> Iterator[pa.Table]:
    # All begun here: a write that takes the rows cannot begin a query from its own threads.
    readers = [table.query(f"{_kept(due, hour)} ORDER BY sampled_at") for hour in _HOURS]
    schema = table.arrow
    return (pa.Table.from_batches([batch]).cast(schema) for reader in readers for batch in reader)


def _kept(due: ThinDay, hour: int) -> str:
    """Return the SQL of the rows, a user's columns with them, that stay of those of four hours of the clock."""
    cell = ", ".join(load_schema(END_OFFSETS).cell)
    ordered = (
        f"SELECT *, row_number() OVER (PARTITION BY {cell}, date_trunc('{due.unit}', sampled_at) "  # noqa: S608 - our own
        f"ORDER BY sampled_at DESC) AS nth FROM rows WHERE {_of(due.day)} "
        f"AND coalesce(date_part('hour', sampled_at), 0) BETWEEN {hour} AND {hour + 3}"
    )
    return f"SELECT k.* EXCEPT (nth) FROM ({ordered}) k WHERE nth = 1"  # noqa: S608 - our own


def _count(table: Snapshot, query: str) -> int:
    (count,) = table.query(f"SELECT count(*) AS n FROM ({query}) q").read_all()["n"].to_pylist()  # noqa: S608 - our own
    return int(count)


def _done(table: Snapshot, unit: str) -> int:
    return table.transaction_version(_app(unit)) or 0


def _app(unit: str) -> str:
    return f"offsetstream/{END_OFFSETS}/thinned to {unit}s"


def _of(day: date) -> str:
    return f"{HISTORY_DAY} = DATE '{day}'"
