"""Thin `end_offsets`: past days keep the last row of each minute, and after 30 days the last row of each hour.

A row that stays gets `previous_sampled_at` of the first row of its minute or hour, since the previous row was true
until then. Each commit has a transaction with the day as its version, so no day is thinned twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa

from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.names import END_OFFSETS
from offsetstream.tables.schema import HISTORY_DAY, load_schema
from offsetstream.tables.store import Snapshot, Store, Transaction

MINUTES_FOR = timedelta(days=30)


class ThinDay(NamedTuple):
    """A day to thin to the last row of each `unit` (minute or hour)."""

    day: date
    unit: str


def due_days(table: Snapshot, today: date) -> list[ThinDay]:
    """Return the days to thin: first to hours, then to minutes, each with the oldest day first."""
    days = sorted(day for day in table.written_days() if day < today)
    to_hours = [day for day in days if day < today - MINUTES_FOR and day.toordinal() > _done(table, "hour")]
    done = max(_done(table, "minute"), _done(table, "hour"))
    to_minutes = [day for day in days if day not in to_hours and day.toordinal() > done]
    return [*(ThinDay(day, "hour") for day in to_hours), *(ThinDay(day, "minute") for day in to_minutes)]


@again_on_conflict
def thin_day(tables: Store, due: ThinDay, *, dry_run: bool = False) -> int:
    """Thin one day in one commit, and return how many rows were removed (with `dry_run`: would be)."""
    table, kept = tables.open(END_OFFSETS), 0
    if _done(table, due.unit) >= due.day.toordinal():  # somebody else has thinned it meanwhile
        return 0
    found = table.query(f"SELECT count(*) AS n FROM rows WHERE {_day_condition(due.day)}").read_all()["n"][0].as_py()  # noqa: S608

    def counted() -> Iterator[pa.Table]:
        nonlocal kept
        for rows in _last_samples(table, due):
            kept += rows.num_rows
            yield rows

    if dry_run:
        deque(counted(), maxlen=0)
    else:
        table.replace(_day_condition(due.day), counted(), Transaction(_app(due.unit), due.day.toordinal()))
    return int(found - kept)


def _last_samples(table: Snapshot, due: ThinDay) -> Iterator[pa.Table]:
    """Yield the rows that stay (with a user's columns) hour by hour, so that no day must fit in memory."""
    cell = load_schema(END_OFFSETS).cell_sql
    with ThreadPoolExecutor(1) as reader:  # the write consumes the rows in threads that cannot start a query
        for hour in _hours(due.day):
            unit = f"OVER (PARTITION BY {cell}, date_trunc('{due.unit}', sampled_at) ORDER BY sampled_at"
            ordered = (
                f"SELECT *, row_number() {unit} DESC) AS nth, first_value(previous_sampled_at) {unit}) AS held_until "  # noqa: S608
                f"FROM rows WHERE {_day_condition(due.day)} AND ({hour})"
            )
            query = (
                "SELECT k.* EXCEPT (nth, previous_sampled_at, held_until), held_until AS previous_sampled_at "  # noqa: S608
                f"FROM ({ordered}) k WHERE nth = 1 ORDER BY sampled_at"
            )
            yield reader.submit(_read, table, query).result()


def _read(table: Snapshot, query: str) -> pa.Table:
    return table.query(query).read_all().select(table.arrow.names).cast(table.arrow)


def _hours(day: date) -> list[str]:
    """Return conditions by hour; each row of the day matches exactly one.

    A row may be sampled outside the day on which it was written: shortly before midnight, or by a wrong clock.
    """
    starts = [datetime.combine(day, time(), UTC) + timedelta(hours=hour) for hour in range(25)]
    first, *_, last = literals = [f"CAST('{instant:%Y-%m-%dT%H:%M:%SZ}' AS TIMESTAMP)" for instant in starts]
    within = [f"sampled_at >= {start} AND sampled_at < {end}" for start, end in pairwise(literals)]
    return [f"sampled_at IS NULL OR sampled_at < {first}", *within, f"sampled_at >= {last}"]


def _done(table: Snapshot, unit: str) -> int:
    return table.transaction_version(_app(unit)) or 0


def _app(unit: str) -> str:
    return f"offsetstream/{END_OFFSETS}/thinned to {unit}s"


def _day_condition(day: date) -> str:
    return f"{HISTORY_DAY} = DATE '{day}'"
