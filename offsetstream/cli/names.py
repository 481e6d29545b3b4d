"""Groups and topics that a user names: by an exact id or a pattern; and what to say of those that are not there."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.text import counted, instant_text
from offsetstream.errors import UnknownNameError
from offsetstream.settings.places import is_utf8
from offsetstream.tables.location import store_at
from offsetstream.tables.schema import is_history

if TYPE_CHECKING:
    from offsetstream.tables.store import Store
    from offsetstream.views.reader import ViewReader

Row = Mapping[str, Any]

_PATTERN = re.compile(r"[*?]|\[.+\]", re.DOTALL)
_COMPLETED = 100  # ids that a shell shows
_LONGEST = 300  # characters: longer names are not compared for likeness
# Tables with known names.
_NAMES = {
    "group_id": ("groups", "committed_offsets", "offset_commits", "group_history"),
    "topic": ("committed_offsets", "offset_commits"),
}
# Tables with names of topics that no group has committed to.
_MENTIONED = {"group_id": (), "topic": ("topics", "topic_partitions", "member_assignments")}
_KIND = {"group_id": "group", "topic": "topic"}


def expand(tables: Store, column: str, wanted: Sequence[str], *, past: bool = False) -> tuple[str, ...]:
    """Return the wanted ids, with the ids that a pattern (`team-a-*`) matches in its place.

    An id that the tables know is no pattern, whatever characters it has. A pattern that matches no id stays as it is,
    like an id that is not there. `past`: ids that are gone count too.
    """
    if not any(is_pattern(each) for each in wanted):
        return tuple(wanted)
    from offsetstream.views.reader import ViewReader

    reader = ViewReader(tables)
    patterns = [each for each in wanted if is_pattern(each) and is_utf8(each)]
    known, found = _known(reader, column, patterns, _MENTIONED[column], past=past), dict[str, None]()
    names = _names_sql(reader, column, _MENTIONED[column], past=past)
    query = f"SELECT {column} FROM ({names}) WHERE {column} GLOB ? ORDER BY 1"  # noqa: S608 - our names
    for each in wanted:
        if not is_pattern(each) or each in known:
            found[each] = None
            continue
        matching = [row[0] for row in reader.connection.execute(query, [each]).fetchall()] if is_utf8(each) else []
        found |= dict.fromkeys(matching or [each])
    return tuple(found)


def complete_ids(column: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return what completes an id in a shell: the ids of the tables that start with what is typed, if these exist."""

    def complete(ctx: click.Context, _: click.Parameter, typed: str) -> list[str]:
        from offsetstream.views.reader import ViewReader

        try:
            reader = ViewReader(store_at(ctx.params.get("tables") or "tables"))
            _known(reader, column, [], _MENTIONED[column], past=False)
            names = _names_sql(reader, column, _MENTIONED[column], past=False)
            query = f"SELECT {column} FROM ({names}) WHERE starts_with({column}, ?) ORDER BY 1 LIMIT {_COMPLETED}"  # noqa: S608 - our names
            return [name for (name,) in reader.connection.execute(query, [typed]).fetchall() if name.isprintable()]
        except Exception:
            return []

    return complete


def matching(wanted: Sequence[str], existing: Collection[str]) -> tuple[str, ...]:
    """Return the wanted ids, as `expand` does, from all existing ones."""
    found = dict[str, None]()
    for each in wanted:
        names = [each] if each in existing or not is_pattern(each) else fnmatch.filter(sorted(existing), each)
        found |= dict.fromkeys(names or [each])
    return tuple(found)


def is_pattern(name: str) -> bool:
    """Tell whether a name may be a pattern: * stands for any text, ? for a character, [ab] for one of some."""
    return _PATTERN.search(name) is not None


def missing_messages(
    reader: ViewReader, column: str, wanted: Collection[str], found: Collection[str], at: datetime | None = None
) -> list[str]:
    """Return a message for each wanted name that is not in `found`: filtered, gone (and since when), or unknown.

    For an unknown name the message has similar ones. With `at`, names that still existed at that time give no message.
    """
    missing = sorted(set(wanted) - set(found))
    if not missing:
        return []
    from offsetstream.tables.filtered_names import FilteredNames

    tables = FilteredNames.of(reader.store)
    filtered = tables.groups(missing) if column == "group_id" else tables.topics(missing)
    messages = (
        f"{_KIND[column]} '{name}' is filtered: the filters of the tables exclude it"
        if name in filtered
        else _missing_text(reader.store, column, name, at)
        for name in missing
    )
    return list(filter(None, messages))


def require_known(tables: Store, groups: Collection[str]) -> list[str]:
    """Return a message for each group that is gone. Raise UnknownNameError if the tables do not know a group."""
    from offsetstream.views.reader import ViewReader

    refuse_unknown(tables, "group_id", groups)
    return missing_messages(ViewReader(tables), "group_id", groups, ())


def refuse_unknown(tables: Store, column: str, names: Collection[str]) -> None:
    """Raise UnknownNameError for names that no table has, now or in the past, with names similar to the first one."""
    from offsetstream.views.reader import ViewReader

    reader = ViewReader(tables)
    if unknown := sorted(set(names) - _known(reader, column, names, _MENTIONED[column])):
        others = len(unknown) - 1
        more = f"; {others} more {'is' if others == 1 else 'are'} not there either" if others else ""
        raise UnknownNameError("".join(missing_messages(reader, column, unknown[:1], ())) + more)


def _missing_text(tables: Store, column: str, name: str, at: datetime | None) -> str | None:
    from offsetstream.views.reader import ViewReader

    if not is_utf8(name):
        return f"{_KIND[column]} '{name}' is not there"
    reader = ViewReader(tables)  # with all groups
    if _known(reader, column, [name]):
        return _gone_group_text(reader, name, at) if column == "group_id" else _gone_topic_text(reader, name, at)
    if is_pattern(name):
        return f"no {_KIND[column]} has the id '{name}' or matches it as a pattern"
    connection, names = reader.connection, _names_sql(reader, column)
    nearest = connection.execute(
        f"""SELECT {column} FROM ({names})
            WHERE length({column}) < {_LONGEST} AND jaro_winkler_similarity({column}, ?) > 0.7
            ORDER BY jaro_winkler_similarity({column}, ?) DESC, {column} LIMIT 3""",  # noqa: S608 - our names
        [name[:_LONGEST], name[:_LONGEST]],
    ).fetchall()
    similar = ", ".join(f"'{row[0]}'" for row in nearest)
    return f"{_KIND[column]} '{name}' is not there" + (f"; nearest: {similar}" if similar else "")


def _known(
    reader: ViewReader, column: str, names: Collection[str], also: Sequence[str] = (), *, past: bool = True
) -> set[str]:
    """Return which of the names are in the tables of `_NAMES` and `also`. This defines these tables in the reader."""
    for table in _tables(reader, column, also, past=past):
        reader.define_table(table)
    all_names = _names_sql(reader, column, also, past=past)
    query = f"SELECT DISTINCT {column} FROM ({all_names}) WHERE {column} IN (SELECT unnest(?))"  # noqa: S608 - our names
    return {name for (name,) in reader.connection.execute(query, [list(names)]).fetchall()}


def _names_sql(reader: ViewReader, column: str, also: Sequence[str] = (), *, past: bool = True) -> str:
    return " UNION ".join(f"FROM {table} SELECT {column}" for table in _tables(reader, column, also, past=past))


def _tables(reader: ViewReader, column: str, also: Sequence[str], *, past: bool) -> list[str]:
    """Return the tables to search. Exclude histories that only Spark can read: it would have to transfer all rows."""
    has_histories = past and not reader.store.needs_spark
    return [each for each in (*_NAMES[column], *also) if has_histories or not is_history(each)]


# When the record of a group was deleted, and when its last offset was; no row if the group still exists.
_GONE = """
SELECT (SELECT max(record_timestamp) FROM group_history WHERE group_id = $1 AND is_removed),
       (SELECT max(record_timestamp) FROM offset_commits WHERE group_id = $1 AND is_tombstone)
WHERE NOT EXISTS (FROM groups WHERE group_id = $1) AND NOT EXISTS (FROM committed_offsets WHERE group_id = $1)"""


def _gone_group_text(reader: ViewReader, name: str, at: datetime | None) -> str | None:
    """Return a message that a group is gone, and since when if known; None if it exists, or existed `at` a time."""
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


# When a topic was deleted; null if a group has an offset in it or a topic of this name exists.
_TOPIC_GONE = """
SELECT max(deleted_at) FROM topics WHERE topic = $1 AND NOT EXISTS (FROM committed_offsets WHERE topic = $1)
  AND NOT EXISTS (FROM topics WHERE topic = $1 AND deleted_at IS NULL)"""


def _gone_topic_text(reader: ViewReader, name: str, at: datetime | None) -> str | None:
    """Return a message that a topic was deleted, and when; None if it exists, existed `at` a time, or is unknown."""
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
    """Return a message for each wanted group and topic without a row: it is not there, or unknown `at` a time."""
    found = {row["group_id"] for row in rows}
    missing = unknown_past_messages(reader, at, groups, found) or missing_messages(
        reader, "group_id", groups, found, at
    )
    return missing + missing_messages(reader, "topic", topics, {row["topic"] for row in rows} if topics else ())


def unknown_past_messages(
    reader: ViewReader, at: datetime | None, groups: Collection[str], found: Collection[str]
) -> list[str]:
    """Return a message for each group whose state at a time is unknown, because the history does not reach back."""
    unknown = {row["group_id"]: row for row in getattr(reader, "unknown", ())}
    return [
        f"group '{name}' is unknown at {instant_text(at)}: {_why(unknown[name])}"
        for name in sorted(set(groups) - set(found))
        if name in unknown
    ]


def no_history_messages(reader: ViewReader, groups: Collection[str], at: datetime | None) -> list[str]:
    """Return a message if an answer about all groups has no row because the history does not reach back to the time."""
    unknown = "" if groups else unknown_text(reader)
    return [f"nothing is known at {instant_text(at)}:{unknown}"] if unknown else []


def unknown_text(reader: ViewReader) -> str:
    """Return which offsets partitions an answer for a past time lacks; an empty text if none."""
    unknown = [row for row in getattr(reader, "unknown", ()) if row["group_id"] is None]
    if not unknown:
        return ""
    partitions = {row["offsets_partition"] for row in unknown}
    starts = [row["unknown_before"] for row in unknown]
    last = unknown[starts.index(None if None in starts else max(starts))]
    return f" {counted(len(partitions), 'offsets partition')} unknown at that time: {_why(last)}."


def _why(row: Mapping[str, Any]) -> str:
    before = instant_text(row["unknown_before"])
    return str(row["unknown_reason"]).replace("unknown_before", before or "a time that is not known yet")
