"""History retention (rule 9): days beyond the horizon are thinned to the last row of each cell.

Whatever is asked of an instant within the horizon has the same answer afterwards: a row that goes has a newer one of
its cell that is beyond the horizon too, or is a tombstone, which says what no row says.
"""

from __future__ import annotations

from datetime import date

from offsetstream.tables.arrow_rows import conform
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.ledger_days import note_thinned, settle
from offsetstream.tables.schema import HISTORY_DAY, TableSchema
from offsetstream.tables.store import Store


def thin_history(tables: Store, schema: TableSchema, horizon: date, *, dry_run: bool = False) -> int:
    """Thin the days before `horizon`, and return how many rows go; none of a table whose rows are of no cell.

    A day at a time, so that a run that is interrupted leaves each cell its last row; the oldest first, so that a
    tombstone goes after the rows that it deleted. `horizon` is at most today: a job may write to today's files.
    """
    if not schema.cell:
        return 0
    past = sorted(day for day in tables.open(schema.name).written_days() if day < horizon)
    thinned = sum(_thin_day(tables, schema, str(day), horizon, dry_run) for day in past)
    if not dry_run:
        settle(tables)
    return thinned


@again_on_conflict
def _thin_day(tables: Store, schema: TableSchema, day: str, horizon: date, dry_run: bool) -> int:
    if not dry_run:
        settle(tables)
    table = tables.open(schema.name)
    (count,) = table.query(f"SELECT count(*) AS n FROM rows WHERE {_of(day)}").read_all()["n"].to_pylist()  # noqa: S608
    kept = table.query(_kept_rows(schema, day, horizon)).read_all()
    if kept.num_rows < count and not dry_run:
        noted = note_thinned(tables, table, day, conform(kept, schema))
        # What is read and what is written are one version of the table: a write in between makes this one fail.
        table.replace(_of(day), [kept.cast(table.arrow).sort_by(schema.position)], noted)
    return int(count - kept.num_rows)


def _kept_rows(schema: TableSchema, day: str, horizon: date) -> str:
    """Return the SQL of the day's rows, a user's columns with them, that are the last of their cell before the horizon.

    The last by its place in the log: a clock that went back may have written a newer record on an earlier day.
    """
    place = (name for name in ("log_id", schema.position) if name in schema.column_names)  # samples are of no log
    order = ", ".join(f"{name} DESC" for name in place)
    ordered = (
        f"SELECT *, row_number() OVER (PARTITION BY {schema.cell_sql} ORDER BY {order}) AS nth, "  # noqa: S608
        f"count(CASE WHEN {_of(day, '>')} THEN 1 END) OVER (PARTITION BY {schema.cell_sql}) AS on_later_days "
        f"FROM rows WHERE {_of(str(horizon), '<')}"
    )
    kept = f"SELECT k.* EXCEPT (nth, on_later_days) FROM ({ordered}) k WHERE nth = 1 AND {_of(day)}"  # noqa: S608 - our own
    if schema.gone is None:
        return kept
    # A tombstone goes after the rows that it deleted. The greatest offset of a partition stays: it tells a load what
    # the history has (rule 8).
    ends = "SELECT offsets_partition, log_id, max(record_offset) AS last FROM rows GROUP BY offsets_partition, log_id"
    is_end = "ends.offsets_partition = k.offsets_partition AND ends.log_id = k.log_id AND last = record_offset"
    is_needed = f"on_later_days > 0 OR EXISTS (SELECT 1 FROM ({ends}) ends WHERE {is_end})"  # noqa: S608
    return f"{kept} AND (NOT ({schema.gone}) OR {is_needed})"


def _of(day: str, comparison: str = "=") -> str:
    return f"{HISTORY_DAY} {comparison} DATE '{day}'"
