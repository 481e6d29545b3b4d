"""What was asked for in vain: names that are not there, with what resembles them, and what no history tells of."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from offsetstream.cli.answers import Row, counted
from offsetstream.cli.times import instant_text

if TYPE_CHECKING:
    from offsetstream.tables.store import Store
    from offsetstream.views.reader import ViewReader

_LONGEST = 300  # characters of a name that is compared with others
# Where a name may be found; the first is where it is looked for, all are where what resembles it is.
_NAMES = {
    "group_id": ("groups", "committed_offsets", "offset_commits", "group_history"),
    "topic": ("committed_offsets", "offset_commits"),
}
_KIND = {"group_id": "group", "topic": "topic"}


def not_there(reader: ViewReader, column: str, wanted: Collection[str], found: Collection[str]) -> list[str]:
    """Return a message for each wanted name that no table has, with what resembles it; `found` are there."""
    missing = sorted(set(wanted) - set(found))
    if not missing:
        return []
    from offsetstream.tables.left_out import LeftOutNames  # noqa: PLC0415 - of DuckDB, which --help does not need

    tables = LeftOutNames.of(reader.store)
    left_out = tables.groups(missing) if column == "group_id" else tables.topics(missing)
    told = (
        f"{_KIND[column]} '{name}' is left out by the filters of the tables"
        if name in left_out
        else _told_missing(reader.store, column, name)
        for name in missing
    )
    return list(filter(None, told))


def _told_missing(tables: Store, column: str, name: str) -> str | None:
    from offsetstream.views.reader import ViewReader  # noqa: PLC0415 - likewise

    reader = ViewReader(tables)  # of all groups
    connection, names = reader.connection, " UNION ".join(f"FROM {table} SELECT {column}" for table in _NAMES[column])
    for table in _NAMES[column]:
        reader.define_table(table)
    known = connection.execute(f"SELECT 1 FROM ({names}) WHERE {column} = ? LIMIT 1", [name]).fetchone()  # noqa: S608 - ours
    if known:
        return None
    nearest = connection.execute(
        f"""SELECT {column} FROM ({names})
            WHERE length({column}) < {_LONGEST} AND jaro_winkler_similarity({column}, ?) > 0.6
            ORDER BY jaro_winkler_similarity({column}, ?) DESC, {column} LIMIT 3""",  # noqa: S608 - likewise
        [name[:_LONGEST], name[:_LONGEST]],
    ).fetchall()
    known_text = ", ".join(f"'{row[0]}'" for row in nearest)
    return f"{_KIND[column]} '{name}' is not there" + (f"; nearest: {known_text}" if known_text else "")


def missing_of(
    reader: ViewReader,
    rows: Collection[Row],
    groups: Collection[str],
    topics: Collection[str] = (),
    at: datetime | None = None,
) -> list[str]:
    """Return a message for each wanted group and topic that has no row and is not there, or is not known of then."""
    found = {row["group_id"] for row in rows}
    missing = unknown_then(reader, at, groups, found) or not_there(reader, "group_id", groups, found)
    return missing + not_there(reader, "topic", topics, {row["topic"] for row in rows} if topics else ())


def unknown_then(reader: ViewReader, at: datetime | None, groups: Collection[str], found: Collection[str]) -> list[str]:
    """Return a message for each group of which the history does not tell what it was at an instant."""
    unknown = {row["group_id"]: row for row in getattr(reader, "unknown", ())}
    return [
        f"group '{name}' at {instant_text(at)} is not known: {_why(unknown[name])}"
        for name in sorted(set(groups) - set(found))
        if name in unknown
    ]


def nothing_known(reader: ViewReader, rows: Collection[Row], groups: Collection[str], at: datetime | None) -> list[str]:
    """Return a message where all groups have no row, since the history does not reach back to the instant."""
    unknown = "" if rows or groups else unknown_text(reader)
    return [f"nothing is told of {instant_text(at)}:{unknown}"] if unknown else []


def unknown_text(reader: ViewReader) -> str:
    """Return what an answer about all groups of an instant lacks; nothing where it lacks nothing."""
    unknown = [row for row in getattr(reader, "unknown", ()) if row["group_id"] is None]
    partitions = {row["offsets_partition"] for row in unknown}
    return f" {counted(len(partitions), 'offsets partition')} not known then: {_why(unknown[0])}." if unknown else ""


def _why(row: Mapping[str, Any]) -> str:
    before = instant_text(row["unknown_before"])
    return str(row["unknown_reason"]).replace("unknown_before", before or "a time that is not known yet")
