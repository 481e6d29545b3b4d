"""Views in DuckDB, over the tables that they need. Each table keeps the version of its first read."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

import duckdb

from offsetstream.errors import NoTableError, TablesError, UsageError, first_line, is_interrupt
from offsetstream.tables.location import damage_in
from offsetstream.tables.lookup import Lookup, fetch_rows, is_one_of, open_connection
from offsetstream.tables.schema import OPTIONAL_TABLES, THRESHOLDS, TableSchema, all_schemas, is_history
from offsetstream.tables.store import Source, Store, require_version
from offsetstream.views.files import View, load_view, needed

if TYPE_CHECKING:
    import pyarrow as pa

    from offsetstream.tables.lookup import Where


_LATER = """
WITH last_before AS (
  SELECT log_id, offsets_partition, max(record_offset) AS record_offset
  FROM "stored offset_commits" WHERE record_timestamp < {since}
  GROUP BY log_id, offsets_partition, group_id, topic, partition, is_tombstone
)
FROM "stored offset_commits" WHERE record_timestamp >= {since}
UNION ALL FROM "stored offset_commits" SEMI JOIN last_before USING (log_id, offsets_partition, record_offset)
  WHERE record_timestamp < {since}"""

# A group may be assigned a partition that it never committed, by the id of a topic that was renamed.
_TOPICS = """
FROM offset_commits SELECT topic UNION FROM member_assignments SELECT topic
UNION FROM member_assignments JOIN topics USING (topic_id) SELECT topics.topic"""
INSTANT = "give --at 10m or --at 03:00, in Python at='10m' or a datetime with a time zone"
_TYPES = {"STRING": "VARCHAR", "BINARY": "BLOB", "TIMESTAMP": "TIMESTAMPTZ"}


class ViewReader:
    """The views and tables of a store. What needs more than 400 MB of memory goes to disk.

    `relations` are DuckDB queries that replace tables or views by name, for example `clock` for another instant. With
    `groups`, tables have only the rows of these groups, which is enough for views of groups. With `since`, the history
    of each cell has only the commits from that time on, and the last commit and deletion before. Readers that share a
    `connection` define their names in its current schema. `opened` has the tables that another reader of the same store
    has opened, so that both see the same versions. All methods raise TablesError if a table is missing or unreadable,
    KeyError for an unknown table, view or column, and UsageError for a missing or unexpected instant.
    """

    def __init__(
        self,
        store: Store,
        relations: Mapping[str, str] | None = None,
        *,
        groups: Collection[str] | None = None,
        since: datetime | None = None,
        connection: duckdb.DuckDBPyConnection | None = None,
        opened: dict[str, Source | None] | None = None,
    ) -> None:
        self.store = store
        self._groups, self._since = groups, since
        self.connection = open_connection() if connection is None else connection
        self._defined: set[str] = set()
        self._sources = {} if opened is None else opened
        self.files: list[str] = []
        for name, query in (relations or {}).items():
            self.define(name, query)

    def rows(self, name: str, where: Where | None = None, *, at: datetime | None = None) -> list[dict[str, Any]]:
        """Return the rows whose columns in `where` have one of the given values; times are datetimes in UTC."""
        with _told(_doing(name)):
            return fetch_rows(self.relation(name, where, at=at))

    def arrow(self, name: str, where: Where | None = None, *, at: datetime | None = None) -> pa.Table:
        """Return the same rows as Arrow."""
        with _told(_doing(name)):
            found: pa.Table = self.relation(name, where, at=at).to_arrow_table()
            return found

    def relation(self, name: str, where: Where | None = None, *, at: datetime | None = None) -> duckdb.DuckDBPyRelation:
        """Return the same rows as a DuckDB relation; `at` (any time zone) is the instant of a view that needs one."""
        wanted = schema_of(name) if _is_table(name) else load_view(name)
        is_at = isinstance(wanted, View) and wanted.is_at
        if is_at and (at is None or at.tzinfo is None):
            raise UsageError(f"the view {name} needs an instant: {INSTANT}")
        if at is not None and not is_at:
            raise UsageError(f"{name} answers about now only: remove at")
        if isinstance(wanted, View):
            self._define_whole(name, at)
        else:
            self.define_table(name)
        relation = self.connection.table(f'"{name}"')
        for column, values in (where or {}).items():
            if column not in wanted.column_names:
                raise KeyError(f"{name} has no column {column}")
            if values is not None:
                relation = relation.filter(is_one_of(column, values))
        return relation

    @cached_property
    def tables(self) -> Lookup:
        """Look-ups in the tables as this reader has them: of its groups, at its instant."""
        return _Defined(self)

    def row_counts(self) -> dict[str, int | None]:
        """Return the row count of each existing table from its log; None if the log lacks it or was not opened.

        Reads no data and raises nothing. If opening a table is expensive (`is_costly`), only open tables are counted.
        """
        found: dict[str, int | None] = {}
        for name in sorted([*all_schemas(), *OPTIONAL_TABLES], key=is_history):
            try:
                if name in self._sources or not self.store.is_costly:
                    self._open([name])
                source = self._sources.get(name)
                if source is not None or name not in self._sources:
                    found[name] = None if source is None else source.row_count
            except Exception:  # stores raise many kinds; the caller only wants an overview
                found[name] = None
        return found

    def _define_whole(self, view: str, at: datetime | None) -> None:
        """Define a view after everything that it reads."""
        views = needed(view)
        # A job may be running: read histories after states, so that each state is in its history.
        tables = sorted({name for each in views for name in each.reads if _is_table(name)}, key=is_history)
        for _, alike in groupby(tables, is_history):
            self._open(each for each in alike if each not in self._defined)
        for table in tables:
            self.define_table(table)
        for each in views:
            self.define_view(each, at)

    def fetch(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query over the defined names."""
        with _told("run a query over the tables"):
            return self.connection.execute(query).fetchall()

    def define_view(self, view: View, at: datetime | None) -> None:
        """Define a view over the tables that it reads. Views that it reads must be defined before."""
        if view.name in self._defined and not view.is_at:
            return
        for table in view.reads:
            self.define_table(table)
        literal = "" if at is None else instant_sql(at)
        query = view.duckdb_sql.replace("$at", literal)
        with _told(_doing(view.name)):
            if view.name in RECENT_VIEWS:
                query = _over_recent(self, view.name, query)
            self.define(view.name, query, kept=view.name in STORED_VIEWS)

    def define(self, name: str, query: str, *, kept: bool = False) -> None:
        """Define a table or view by a DuckDB query. `kept` stores its rows, for names that are read often."""
        self.connection.execute(f'CREATE OR REPLACE {"TABLE" if kept else "VIEW"} "{name}" AS {query}')
        self._defined.add(name)

    def set_max_age(self, seconds: float) -> None:
        """Set the age in seconds from which data is stale; infinite: never."""
        literal = "NULL" if math.isinf(seconds) else repr(seconds)
        self.define("max_age", f"SELECT CAST({literal} AS DOUBLE) AS max_age_seconds")

    def has(self, name: str) -> bool:
        """Return whether a name is defined."""
        return name in self._defined

    def define_table(self, table: str) -> None:
        """Define a table by its stored rows. Ignores names that are not tables."""
        if table not in self._defined and _is_table(table):
            with _told(_doing(table)):
                self.define(table, self.table_query(table))

    def table_query(self, table: str) -> str:
        """Return the query of a table's stored rows. A column that the files lack is null."""
        schema = schema_of(table)
        rows = f"{table} as it is stored"
        self._open([table])
        source = self._sources[table]
        relation = None if source is None else source.relation(self.connection)
        if source is None or relation is None:
            return f"SELECT {columns_of(schema, ())} WHERE false"
        self.files += source.files
        columns = relation.columns
        if table == THRESHOLDS.name:
            _refuse_mistakes(dict(zip(columns, map(str, relation.types), strict=True)))
        if self._groups is not None and "group_id" in columns and table not in OPTIONAL_TABLES:
            relation = relation.filter(is_one_of("group_id", self._groups))
        if source.is_read_once:
            relation.to_table(rows)
        else:
            relation.to_view(rows)
        query = f'SELECT {columns_of(schema, columns)} FROM "{rows}"'  # noqa: S608 - the names are ours
        if table == "end_offsets" and self._groups is not None:
            return self._of_topics(query)
        if table != "offset_commits" or self._since is None:
            return query
        since = f"TIMESTAMPTZ '{self._since.astimezone(UTC).isoformat()}'"
        self.define("stored offset_commits", query)
        self.define("later offset_commits", _LATER.format(since=since), kept=True)
        return 'FROM "later offset_commits"'

    def _open(self, tables: Iterable[str]) -> None:
        """Open tables in parallel, since each log may be remote. With Spark, open them one by one."""
        missing = [table for table in tables if table not in self._sources]
        at_once = 1 if self.store.needs_spark else len(missing)
        with ThreadPoolExecutor(at_once or 1) as pool:
            self._sources |= zip(missing, pool.map(self._source, missing), strict=True)

    def _source(self, table: str) -> Source | None:
        """Return the source of a table's rows; None for an optional table that does not exist."""
        try:
            source = self.store.source(table)
            require_version(source, may_be_users=table in OPTIONAL_TABLES)
        except NoTableError:
            if table not in OPTIONAL_TABLES:
                raise
            return None
        return source

    def _of_topics(self, query: str) -> str:
        """Return the query for the rows of topics that the groups commit or are assigned."""
        for table in ("offset_commits", "member_assignments", "topics"):
            self.define_table(table)
        self.define("topics of groups", _TOPICS, kept=True)  # views read it often
        return f"FROM ({query}) WHERE topic = '__consumer_offsets' OR topic IN (FROM \"topics of groups\")"


class _Defined(Lookup):
    """Look-ups in the tables of a reader."""

    def __init__(self, reader: ViewReader) -> None:
        self.store, self._connection, self._reader = reader.store, reader.connection, reader

    def _where(self, table: str) -> str:
        return table

    def _open(self, connection: duckdb.DuckDBPyConnection, table: str) -> duckdb.DuckDBPyRelation:
        self._reader.define_table(table)
        return connection.table(f'"{table}"')


RECENT_VIEWS = frozenset({"time_lag", "group_status_partitions"})
# Their rows are stored: other views read them several times, and DuckDB would plan them each time.
STORED_VIEWS = frozenset({"freshness", "partition_ends", "waiting_commits"})
_BY_COMMITS = "group_status_partitions"  # needs the group's last commits, which are slow to find
_LIMITS = ("intervals", "window_seconds", "max_time_lag_seconds")
_MOST = 999_999  # upper limit of DuckDB's arg_max
_NO_COMMITS = "(SELECT NULL AS cell, NULL AS record_timestamp, NULL AS record_offset WHERE false)"
_RECENT, _OFFSETS, _FEWER = "recent end_intervals", "recent end_offsets", " by offset"
_RING, _WINDOW_SECONDS, _SAMPLE_SECONDS = 10, 300, 10  # as in group_status_partitions.sql
# For each partition: the lowest next offset to read, and the earliest time at which a status needs the end offset: that
# of its last commits, of the commit that was current when the window started, or of the first end in the ring. The last
# sample at or below that offset and the last one at or before that time are the first that are needed.
_QUERY = """
WITH rings AS (
  SELECT cell, list_min(arg_max(record_timestamp, record_offset, {intervals})) AS ring_at,
         max(record_timestamp) FILTER (record_timestamp <= as_of - to_seconds({seconds})) AS before_at
  FROM {commits} JOIN (SELECT cell, as_of FROM waiting_cells) USING (cell) GROUP BY cell
), needs AS (
  SELECT topic, partition, any_value(topic_id) AS topic_id, min(next_to_read) AS next_to_read,
         least(min(r.ring_at), min(r.before_at), min(w.sampled_at) - to_seconds({ring_seconds}),
               min(w.as_of) - to_seconds({seconds})) AS since
  FROM waiting_cells AS w LEFT JOIN rings AS r USING (cell)
  GROUP BY topic, partition
), begins AS (
  SELECT topic, partition, max(sampled_at) FILTER (high_watermark <= next_to_read) AS by_offset,
         max(sampled_at) FILTER (sampled_at <= since) AS by_time
  FROM end_offsets AS e JOIN needs AS n USING (topic, partition) WHERE e.topic_id IS NOT DISTINCT FROM n.topic_id
  GROUP BY topic, partition
)
SELECT e.* FROM end_offsets AS e JOIN needs AS n USING (topic, partition) LEFT JOIN begins USING (topic, partition)
WHERE e.topic_id IS NOT DISTINCT FROM n.topic_id
  AND (by_offset IS NULL OR by_time IS NULL OR sampled_at >= least(by_offset, by_time))"""


def _over_recent(reader: ViewReader, view: str, query: str) -> str:
    """Read the samples that a view about now needs, and return its query over them.

    A month of samples has millions of rows, but `time_lag` and `group_status` need few of them: of partitions with
    waiting messages, since the earliest needed time. Both read `end_intervals`, which is built here from these rows
    only. The answers are the same as with all rows.
    """
    by_commits = view == _BY_COMMITS or reader.has(_RECENT)
    suffix = "" if by_commits else _FEWER
    if not reader.has(_RECENT + suffix):
        _define_recent(reader, suffix, by_commits=by_commits)
    return query.replace("end_intervals", f'"{_RECENT}{suffix}"')


def _define_recent(reader: ViewReader, suffix: str, *, by_commits: bool) -> None:
    for view in needed("waiting_cells"):
        reader.define_view(view, None)
    for table in ("thresholds", "end_offsets"):
        reader.define_table(table)
    largest = [f"ceil(max(nullif({name}::DOUBLE, 'NaN'::DOUBLE)))::BIGINT" for name in _LIMITS]
    limits = f"SELECT {', '.join(largest)} FROM thresholds"  # noqa: S608 - the names are ours
    intervals, window, time_lag = (each or 0 for each in reader.connection.execute(limits).fetchall()[0])
    intervals = min(max(intervals, _RING), _MOST)
    values = {
        "intervals": intervals,
        "ring_seconds": (intervals - 1) * _SAMPLE_SECONDS,
        "seconds": max(window, time_lag, _WINDOW_SECONDS),
        "commits": "waiting_commits" if by_commits else _NO_COMMITS,
    }
    reader.define(_OFFSETS + suffix, _QUERY.format(**values), kept=True)
    ends = load_view("end_intervals").duckdb_sql.replace("end_offsets", f'"{_OFFSETS}{suffix}"')
    reader.define(_RECENT + suffix, ends, kept=True)


def _is_table(name: str) -> bool:
    return name in OPTIONAL_TABLES or name in all_schemas()


def schema_of(table: str) -> TableSchema:
    """Return the schema of a table, including optional ones. Raises KeyError for an unknown table."""
    return OPTIONAL_TABLES.get(table) or all_schemas()[table]


def _doing(name: str) -> str:
    return f"read the table {name}" if _is_table(name) else f"compute the view {name}"


def columns_of(schema: TableSchema, existing: list[str] | tuple[()]) -> str:
    """Return the schema's columns as SQL; columns that the files lack are null."""
    return ", ".join(
        f'"{column.name}"'
        if column.name in existing
        else f'CAST(NULL AS {_TYPES.get(column.type, column.type)}) AS "{column.name}"'
        for column in schema.columns
    )


def _refuse_mistakes(columns: Mapping[str, str]) -> None:
    """Raise TablesError if the user's table of limits has a misspelt column, or one of another kind."""
    from difflib import get_close_matches  # noqa: PLC0415 - few have this table

    names = {column.name: column.type for column in THRESHOLDS.columns}
    lacking = [name for name in names if name not in columns]
    for column, kind in columns.items():
        if column not in names:
            if meant := get_close_matches(column, lacking, 1):
                raise TablesError(
                    f"the table thresholds has a column {column}, which nothing reads: name it {meant[0]}"
                )
        elif (kind == "VARCHAR") != (names[column] == "STRING"):
            raise TablesError(f"the column {column} of the table thresholds is a {kind}: make it {names[column]}")
    if "group_id" in lacking:
        raise TablesError(f"the table thresholds has no column group_id: its columns are {', '.join(names)}")


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, OSError) as error:
        if is_interrupt(error):
            raise
        raise damage_in(error) or TablesError(f"cannot {what}: {first_line(error)}") from error


def instant_sql(at: datetime) -> str:
    """Return the instant as a literal of DuckDB."""
    return f"TIMESTAMPTZ '{at.astimezone(UTC).isoformat()}'"


def nearest_text(name: str, known: Iterable[str], number: int = 3) -> str:
    """Return `; nearest: a, b`, or an empty text if no name is similar."""
    found = get_close_matches(name, list(known), number, 0.5)
    return f"; nearest: {', '.join(found)}" if found else ""
