"""What was asked for in vain: names that are not there, with what resembles them, and what no history tells of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from offsetstream.cli.answers import Row, counted
from offsetstream.cli.times import instant_text
from offsetstream.errors import UnknownNameError

if TYPE_CHECKING:
    from offsetstream.tables.store import Store
    from offsetstream.views.reader import ViewReader

_LONGEST = 300  # characters of a name that is compared with others
# Where a name may be found; the first is where it is looked for, all are where what resembles it is.
_NAMES = {
    "group_id": ("groups", "committed_offsets", "offset_commits", "group_history"),
    "topic": ("committed_offsets", "offset_commits"),
}
# A topic that no group has an offset in is none that a group reads, but there.
_MENTIONED = {"group_id": (), "topic": ("topics", "topic_partitions", "member_assignments")}
_KIND = {"group_id": "group", "topic": "topic"}


def not_there(
    reader: ViewReader, column: str, wanted: Collection[str], found: Collection[str], at: datetime | None = None
) -> list[str]:
    """Return a message for each wanted name that is not there now, or at an instant; `found` are there.

    Of a name that no table has it says what resembles it, of a group or topic that is gone since when.
    """
    missing = sorted(set(wanted) - set(found))
    if not missing:
        return []
    from offsetstream.tables.filtered_names import FilteredNames  # noqa: PLC0415 - of DuckDB, which --help does not need

    tables = FilteredNames.of(reader.store)
    filtered = tables.groups(missing) if column == "group_id" else tables.topics(missing)
    told = (
        f"{_KIND[column]} '{name}' is left out by the filters of the tables"
        if name in filtered
        else _told_missing(reader.store, column, name, at)
        for name in missing
    )
    return list(filter(None, told))


def require_known(tables: Store, groups: Collection[str]) -> list[str]:
    """Return a message for each group that is gone; UnknownNameError for one of which the tables know nothing."""
    from offsetstream.views.reader import ViewReader  # noqa: PLC0415 - likewise

    refuse_unknown(tables, "group_id", groups)
    return not_there(ViewReader(tables), "group_id", groups, ())


def refuse_unknown(tables: Store, column: str, names: Collection[str]) -> None:
    """Raise UnknownNameError for names that no table has, now or before, with what resembles the first of them."""
    from offsetstream.views.reader import ViewReader  # noqa: PLC0415 - likewise

    reader = ViewReader(tables)
    if unknown := sorted(set(names) - _known(reader, column, names, _MENTIONED[column])):
        more = f"; {len(unknown) - 1} more are not there either" if len(unknown) > 1 else ""
        raise UnknownNameError("".join(not_there(reader, column, unknown[:1], ())) + more)


def _told_missing(tables: Store, column: str, name: str, at: datetime | None) -> str | None:
    from offsetstream.views.reader import ViewReader  # noqa: PLC0415 - likewise

    reader = ViewReader(tables)  # of all groups
    if _known(reader, column, [name]):
        return _told_gone(reader, name, at) if column == "group_id" else _told_gone_topic(reader, name, at)
    connection, names = reader.connection, _names_sql(reader, column)
    nearest = connection.execute(
        f"""SELECT {column} FROM ({names})
            WHERE length({column}) < {_LONGEST} AND jaro_winkler_similarity({column}, ?) > 0.6
            ORDER BY jaro_winkler_similarity({column}, ?) DESC, {column} LIMIT 3""",  # noqa: S608 - likewise
        [name[:_LONGEST], name[:_LONGEST]],
    ).fetchall()
    known_text = ", ".join(f"'{row[0]}'" for row in nearest)
    return f"{_KIND[column]} '{name}' is not there" + (f"; nearest: {known_text}" if known_text else "")


def _known(reader: ViewReader, column: str, names: Collection[str], also: Sequence[str] = ()) -> set[str]:
    """Return which of the names the tables of `_NAMES` have, which are defined then, or others `also`."""
    for table in _tables(reader, column, also):
        reader.define_table(table)
    named = _names_sql(reader, column, also)
    query = f"SELECT DISTINCT {column} FROM ({named}) WHERE {column} IN (SELECT unnest(?))"  # noqa: S608 - ours
    return {name for (name,) in reader.connection.execute(query, [list(names)]).fetchall()}


def _names_sql(reader: ViewReader, column: str, also: Sequence[str] = ()) -> str:
    return " UNION ".join(f"FROM {table} SELECT {column}" for table in _tables(reader, column, also))


def _tables(reader: ViewReader, column: str, also: Sequence[str]) -> list[str]:
    """Return where names are looked for: in no history, where Spark would have to hand over all of it."""
    from offsetstream.tables.schema import is_history  # noqa: PLC0415 - likewise

    return [each for each in (*_NAMES[column], *also) if not (reader.store.needs_spark and is_history(each))]


# Of a group that nothing present is of: when its record went, and when its last offset did.
_GONE = """
SELECT (SELECT max(record_timestamp) FROM group_history WHERE group_id = $1 AND is_removed),
       (SELECT max(record_timestamp) FROM offset_commits WHERE group_id = $1 AND is_tombstone)
WHERE NOT EXISTS (FROM groups WHERE group_id = $1) AND NOT EXISTS (FROM committed_offsets WHERE group_id = $1)"""


def _told_gone(reader: ViewReader, name: str, at: datetime | None) -> str | None:
    """Return that a group of the history is there no longer, and since when as far as that is known.

    None where it is there, or was still there `at` an instant.
    """
    gone = reader.connection.execute(_GONE, [name]).fetchone()
    if gone is None:
        return None
    removed_at, emptied_at = gone
    if at is not None and any(each is not None and each > at for each in gone):
        return None
    if removed_at is not None and (emptied_at is None or emptied_at <= removed_at):
        since = f": it was deleted at {instant_text(removed_at)}"
    elif emptied_at is not None:
        since = f": its last offset was deleted at {instant_text(emptied_at)}"
    else:
        since = " any more"
    return f"group '{name}' is not there{since}"


# Of a topic of which nothing present has an offset: when it was deleted, unless one of this name is there.
_TOPIC_GONE = """
SELECT max(deleted_at) FROM topics WHERE topic = $1 AND NOT EXISTS (FROM committed_offsets WHERE topic = $1)
  AND NOT EXISTS (FROM topics WHERE topic = $1 AND deleted_at IS NULL)"""


def _told_gone_topic(reader: ViewReader, name: str, at: datetime | None) -> str | None:
    """Return that a topic was deleted, and when; None where it is there, or was `at` an instant, or nothing tells."""
    reader.define_table("topics")
    ((deleted_at,),) = reader.connection.execute(_TOPIC_GONE, [name]).fetchall()
    if deleted_at is None or (at is not None and deleted_at > at):
        return None
    return f"topic '{name}' is not there: it was deleted by {instant_text(deleted_at)}"


def missing_of(
    reader: ViewReader,
    rows: Collection[Row],
    groups: Collection[str],
    topics: Collection[str] = (),
    at: datetime | None = None,
) -> list[str]:
    """Return a message for each wanted group and topic that has no row and is not there, or is not known of then."""
    found = {row["group_id"] for row in rows}
    missing = unknown_then(reader, at, groups, found) or not_there(reader, "group_id", groups, found, at)
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
