"""Retention of histories (rule 9): records of past days become fewer, so that the tables stay small.

On days before the horizon, only the last row of each cell stays (`thin_history`). Queries for a time after the horizon
have the same result afterwards. A row is removed only if its cell has a newer row that is also before the horizon,
or if it is a tombstone: no row at all means the same as a tombstone.

In `end_offsets`, past days keep the last row of each minute, and after 30 days the last row of each hour (`thin_day`).
A row that stays gets `previous_sampled_at` of the first row of its minute or hour, since the previous row was true
until then. Each commit has a transaction with the day as its version, so no day is thinned twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa

from offsetstream.tables.ledger import apply_notes, note_thinned
from offsetstream.tables.names import END_OFFSETS, OFFSETS_PARTITIONS
from offsetstream.tables.rows import conform
from offsetstream.tables.schema import HISTORY_DAY, TableSchema, load_schema
from offsetstream.tables.small_tables import Row, read_rows
from offsetstream.tables.store import Snapshot, Store, Transaction
from offsetstream.tables.transaction import again_on_conflict


def kept_from(horizons: Mapping[str, date]) -> datetime | None:
    """Return the time from which all histories are kept, for `history_complete_from`; None if all keep everything."""
    return datetime.combine(max(horizons.values()), time(), UTC) if horizons else None


def is_announced(tables: Store, instant: datetime) -> bool:
    """Return whether no partition says that its history is complete from an earlier time: then rows may go."""
    return not any(is_complete_before(row, instant) for row in read_rows(tables.open(OFFSETS_PARTITIONS)))


def is_complete_before(row: Row, instant: datetime) -> bool:
    """Return whether a partition's row says that its history is complete from before the instant."""
    since: datetime | None = row["history_complete_from"]
    return since is not None and since < instant


def thin_history(tables: Store, schema: TableSchema, horizon: date, *, dry_run: bool = False) -> int:
    """Thin the days before `horizon` and return how many rows were removed; tables without a cell are kept complete.

    It thins one day per commit, so an interrupted run still leaves each cell its last row. The oldest day comes first,
    so a tombstone is removed after the rows that it deleted. `horizon` is at most today, because a job may be writing
    today's files.
    """
    if not schema.cell:
        return 0
    past = sorted(day for day in tables.open(schema.name).written_days() if day < horizon)
    thinned = sum(_thin_day(tables, schema, str(day), horizon, dry_run) for day in past)
    if not dry_run:
        apply_notes(tables)
    return thinned


@again_on_conflict
def _thin_day(tables: Store, schema: TableSchema, day: str, horizon: date, dry_run: bool) -> int:
    if not dry_run:
        apply_notes(tables)
    table = tables.open(schema.name)
    (count,) = table.query(f"SELECT count(*) AS n FROM rows WHERE {_day_condition(day)}").read_all()["n"].to_pylist()  # noqa: S608
    kept = table.query(_kept_rows(schema, day, horizon)).read_all()
    if kept.num_rows < count and not dry_run:
        noted = note_thinned(tables, table, day, conform(kept, schema))
        # The rows were read from this version of the table: a write in between makes this commit fail.
        table.replace(_day_condition(day), [kept.cast(table.arrow).sort_by(schema.position)], noted)
    return int(count - kept.num_rows)


def _kept_rows(schema: TableSchema, day: str, horizon: date) -> str:
    """Return the SQL for the day's rows (with a user's columns) that are the last of their cell before the horizon.

    The last row is the one with the greatest position in the log. The day does not decide: if the clock went back, a
    newer record may be on an earlier day.
    """
    place = (name for name in ("log_id", schema.position) if name in schema.column_names)  # samples have no log id
    order = ", ".join(f"{name} DESC" for name in place)
    ordered = (
        f"SELECT *, row_number() OVER (PARTITION BY {schema.cell_sql} ORDER BY {order}) AS nth, "  # noqa: S608
        f"count(CASE WHEN {_day_condition(day, '>')} THEN 1 END) OVER (PARTITION BY {schema.cell_sql}) "
        "AS on_later_days "
        f"FROM rows WHERE {_day_condition(horizon, '<')}"
    )
    kept = f"SELECT k.* EXCEPT (nth, on_later_days) FROM ({ordered}) k WHERE nth = 1 AND {_day_condition(day)}"  # noqa: S608 - our own
    if schema.gone is None:
        return kept
    # A tombstone stays until the rows that it deleted are removed. The row with a log's greatest offset always stays:
    # a load reads there up to where the history is written (rule 8).
    ends = "SELECT offsets_partition, log_id, max(record_offset) AS last FROM rows GROUP BY offsets_partition, log_id"
    is_end = "ends.offsets_partition = k.offsets_partition AND ends.log_id = k.log_id AND last = record_offset"
    is_needed = f"on_later_days > 0 OR EXISTS (SELECT 1 FROM ({ends}) ends WHERE {is_end})"  # noqa: S608
    return f"{kept} AND (NOT ({schema.gone}) OR {is_needed})"


def _day_condition(day: str | date, comparison: str = "=") -> str:
    return f"{HISTORY_DAY} {comparison} DATE '{day}'"


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
