"""History retention (rule 9): on days before the horizon, only the last row of each cell stays.

Queries for a time after the horizon have the same result afterwards. A row is removed only if its cell has a newer row
that is also before the horizon, or if it is a tombstone: no row at all means the same as a tombstone.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time

from offsetstream.tables.arrow_rows import conform
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.ledger_days import apply_notes, note_thinned
from offsetstream.tables.names import OFFSETS_PARTITIONS
from offsetstream.tables.schema import HISTORY_DAY, TableSchema
from offsetstream.tables.small_tables import Row, read_rows
from offsetstream.tables.store import Store


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
        f"FROM rows WHERE {_day_condition(str(horizon), '<')}"
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


def _day_condition(day: str, comparison: str = "=") -> str:
    return f"{HISTORY_DAY} {comparison} DATE '{day}'"
