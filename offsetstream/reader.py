"""Tables and views for Python: rows as Arrow, which pandas, Polars and DuckDB use without a copy."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from offsetstream.errors import MissingPackageError, NoTableError, UsageError
from offsetstream.tables.location import store_at
from offsetstream.tables.lookup import open_connection
from offsetstream.tables.names import COMMITTED_OFFSETS
from offsetstream.tables.schema import OPTIONAL_TABLES, all_schemas
from offsetstream.tables.store import Source, Store, require_version
from offsetstream.views.files import all_views, load_view
from offsetstream.views.reader import INSTANT, ViewReader, nearest_text, schema_of
from offsetstream.views.sandbox import Limits, Query

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from offsetstream.names import TableName, ViewName

Wanted = str | int | Collection[str] | Collection[int] | None
At = str | datetime | None
_PARAMETERS = {"group_id": "group"}  # columns with another name on the command line
_WIDTH = 100


def open_tables(
    tables: str | PathLike[str], spark: SparkSession | None = None, *, max_age: timedelta | None = None
) -> Tables:
    """Open the tables in a folder, at a URI or, with `spark`, in `catalog.schema`.

    Data that the job has not checked for `max_age` is stale (column `is_stale` of the views). The default, None,
    derives the age from the job's check interval; with `timedelta.max` nothing is stale. Raises NoTableError if there
    are no tables, UsageError for an invalid place, MissingPackageError for a catalog without PySpark.
    """
    named = store_at(fspath(tables))
    store = named if spark is None else named.read_by(spark)
    try:
        require_version(store.source(COMMITTED_OFFSETS))
    except ModuleNotFoundError as error:
        from offsetstream.cli.failures import missing_package  # noqa: PLC0415 - rarely needed

        raise missing_package(error, "") from None
    except NoTableError as error:
        raise NoTableError(
            f"there are no tables in {store.name}: name a job's folder, or create tables with 'offsetstream run'"
        ) from error
    return Tables(store, max_age)


class Tables:
    """The tables of one cluster and the views over them. Each table keeps the version of its first read.

    Print the object to see what it contains. `group` and `topic` take one name or several. Every other column, such as
    `partition` or `verdict`, is a parameter by its own name. None selects all rows. Methods raise UnknownNameError for
    a group or topic that no table contains, UsageError for an unknown table, view or parameter, and TablesError if a
    table cannot be read. `docs/reference/tables.md` and `docs/reference/views.md` list the columns.

        tables = open_tables("tables")
        tables.view("lag", group="billing").df()
        tables.view("offsets_at", at="10m", topic=["orders", "payments"])
        tables.sql("SELECT topic, sum(lag) AS lag FROM lag GROUP BY topic")
    """

    def __init__(self, store: Store, max_age: timedelta | None = None) -> None:
        self._store, self._max_age = store, max_age
        self._opened: dict[str, Source | None] = {}

    @property
    def tables(self) -> dict[str, str]:
        """Describe one row of each table, by table name."""
        schemas = sorted([*all_schemas().values(), *OPTIONAL_TABLES.values()], key=lambda schema: schema.name)
        return {schema.name: schema.comment.split(". ")[0] for schema in schemas}

    @property
    def views(self) -> dict[str, str]:
        """Describe one row of each view, by view name; `(at=)` marks views that need `at`."""
        views = sorted((view for view in all_views().values() if not view.is_helper), key=lambda view: view.name)
        return {view.name: view.comment.split(". ")[0] + (" (at=)" if view.is_at else "") for view in views}

    def __repr__(self) -> str:
        """Return the place of the tables, their row counts, and how to query them.

        Row counts come from Delta's log: no data is read. Where opening a log costs a request to a store or a Spark
        job, only tables that were already read have a count.
        """
        counts = self._new_reader().row_counts()
        width = max(map(len, counts))
        rows = [
            f"  {name:{width}}  {'?' if rows is None else f'{rows:,}':>12}" for name, rows in sorted(counts.items())
        ]
        views = textwrap.fill(", ".join(self.views), _WIDTH, initial_indent="  ", subsequent_indent="  ")
        return "\n".join(
            (
                f"Tables of {self._store.name}",
                f"{len(rows)} tables with their row counts (.read(name), .sql(query); .tables describes them):",
                *rows,
                f"{len(self.views)} views (.view(name), .sql(query); .views describes them):",
                views,
            )
        )

    def freshness(self) -> Rows:
        """Return how recent the data of each offsets partition is, and whether it is stale."""
        return self.view("freshness")

    def committed_offsets(self, *, group: Wanted = None, topic: Wanted = None) -> Rows:
        """Return the committed offsets of the selected groups and topics, as their coordinators would.

        The other methods named after state tables do the same. `read` also returns rows that a change of the partition
        count left behind in another offsets partition.
        """
        return self.read("committed_offsets", group=group, topic=topic, in_coordinator_partition=True)

    def groups(self, *, group: Wanted = None) -> Rows:
        """Return the groups."""
        return self.read("groups", group=group, in_coordinator_partition=True)

    def group_members(self, *, group: Wanted = None) -> Rows:
        """Return the members of the groups."""
        return self.read("group_members", group=group, in_coordinator_partition=True)

    def member_assignments(self, *, group: Wanted = None, topic: Wanted = None) -> Rows:
        """Return the partitions that members own, will get, or must give up."""
        return self.read("member_assignments", group=group, topic=topic, in_coordinator_partition=True)

    def member_subscriptions(self, *, group: Wanted = None) -> Rows:
        """Return the subscriptions of members."""
        return self.read("member_subscriptions", group=group, in_coordinator_partition=True)

    def offset_commits(self, *, group: Wanted = None, topic: Wanted = None) -> Rows:
        """Return the history of the groups' commits and offset tombstones."""
        return self.read("offset_commits", group=group, topic=topic)

    def read(self, table: TableName, **wanted: Wanted) -> Rows:
        """Return the rows of a table, with the types in `docs/reference/tables.md`."""
        if table not in self.tables:
            is_view = f"; {table} is a view: view('{table}')" if table in all_views() else ""
            raise UsageError(f"there is no table {table}{is_view or nearest_text(table, self.tables)}")
        schema = schema_of(table)
        return Rows(self._rows(table, schema.column_names, wanted).cast(schema.arrow))

    def view(self, view: ViewName, *, at: At = None, **wanted: Wanted) -> Rows:
        """Return the rows of a view.

        Views such as `offsets_at` need an instant `at`: a datetime with a time zone, or a text as for `--at` (`10m`
        ago, `03:00`, `2026-11-21T03:00+01:00`; UTC if it has no zone).
        """
        if view not in all_views():
            is_table = f"; {view} is a table: read('{view}')" if view in self.tables else ""
            raise UsageError(f"there is no view {view}{is_table or nearest_text(view, self.views)}")
        return Rows(self._rows(view, load_view(view).column_names, wanted, _instant(at)))

    def sql(self, query: str, *, at: At = None, memory: str = Limits.memory, timeout: float = Limits.seconds) -> Rows:
        """Return the rows of one DuckDB SELECT over all tables and views, as `offsetstream sql` does.

        The query cannot reach your files or variables, and changes nothing. `at` is the instant of views that need one.
        `memory` (such as "2GB") is what DuckDB may take, without the result; `timeout` is in seconds. Raises QueryError
        if DuckDB rejects the query, or if it exceeds a limit.
        """
        return Rows(Query(self._new_reader(), query, _instant(at), Limits(memory, timeout)).arrow())

    def _new_reader(self) -> ViewReader:
        """Return a reader of the same versions for one answer: it stores views, and they depend on the time."""
        reader = ViewReader(self._store, opened=self._opened)
        if self._max_age is not None:
            reader.set_max_age(math.inf if self._max_age == timedelta.max else self._max_age.total_seconds())
        return reader

    def _rows(
        self, name: str, columns: Sequence[str], wanted: dict[str, Wanted], at: datetime | None = None
    ) -> pa.Table:
        parameters = {_PARAMETERS.get(column, column): column for column in columns}
        where: dict[str, list[Any]] = {}
        for parameter, values in wanted.items():
            if parameter not in parameters:
                known = nearest_text(_PARAMETERS.get(parameter, parameter), parameters)
                raise UsageError(f"{name} has no parameter {parameter}{known}")
            if values is not None:
                where[parameters[parameter]] = [values] if isinstance(values, str | int) else list(values)
        found = self._new_reader().arrow(name, where, at=at)
        for column in ("group_id", "topic"):
            if column in where and (missing := set(where[column]) - set(found[column].unique().to_pylist())):
                from offsetstream.cli.names import refuse_unknown  # noqa: PLC0415 - rarely used

                refuse_unknown(self._store, column, missing)
        return found


class Rows:
    """Rows as Arrow, with everything that a `pyarrow.Table` has (`num_rows`, `to_pylist()`, `select()`, ...).

    Polars, DuckDB and other libraries that read Arrow's C stream accept it directly.
    """

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def arrow(self) -> pa.Table:
        """Return the `pyarrow.Table`."""
        return self._rows

    def df(self) -> pd.DataFrame:
        """Return a pandas frame with Arrow types: offsets stay exact integers next to nulls.

        Raises MissingPackageError if pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: PLC0415 - extra pandas
        except ModuleNotFoundError:
            raise MissingPackageError("pandas", "pandas") from None
        found: pd.DataFrame = self._rows.to_pandas(types_mapper=pd.ArrowDtype)
        return found

    def pl(self) -> pl.DataFrame:
        """Return a Polars frame. Raises MissingPackageError if Polars is not installed."""
        try:
            import polars as pl  # noqa: PLC0415 - extra polars
        except ModuleNotFoundError:
            raise MissingPackageError("polars", "polars") from None
        return pl.DataFrame(self._rows)

    def __repr__(self) -> str:
        """Return the first and last rows as a text table, drawn by DuckDB."""
        return str(open_connection().from_arrow(self._rows))

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def __getitem__(self, column: Any) -> Any:
        return self._rows[column]

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._rows)})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # `_rows` itself does not exist yet while a copy is made
            raise AttributeError(name)
        return getattr(self._rows, name)


def _instant(at: At) -> datetime | None:
    from offsetstream.cli.text import parse_time  # noqa: PLC0415 - the same time syntax as the commands

    now = datetime.now(UTC)
    if isinstance(at, str):
        try:
            at = parse_time(at, now)
        except ValueError as error:
            raise UsageError(str(error)) from error
    if at is not None and at.tzinfo is None:
        raise UsageError(f"{at} has no time zone: {INSTANT}")
    if at is not None and at > now:
        raise UsageError(f"{at} is in the future: {INSTANT}")
    return at
