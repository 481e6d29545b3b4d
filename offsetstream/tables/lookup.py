"""Quick looks into the tables without Spark: delta-rs finds a table's files, DuckDB reads them."""

from __future__ import annotations

import re
import tempfile
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import duckdb
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError
from duckdb import ColumnExpression, ConstantExpression, FunctionExpression

from offsetstream.errors import TablesError, first_line
from offsetstream.tables.location import is_utf8
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.version import refuse_newer

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]
Where = Mapping[str, Collection[str] | Collection[int] | None]  # column: the values wanted

_GLOB = re.compile(r"[*?\[]")
_AT_ONCE = 2048  # rows that are Python's at a time
_MEMORY = "400MB"  # what sorting takes beyond that goes to disk


class Lookup:
    """Reads rows of the tables at ``location``, each table at its version of the moment it is first read."""

    def __init__(self, location: PathStore) -> None:
        self.location = location
        self._connection = duckdb.connect(config=_config())
        self._sources: dict[str, DeltaTable] = {}

    def rows(
        self, table: str, columns: Sequence[str], where: Where | None = None, *, distinct: bool = False
    ) -> list[Row]:
        """Return the named columns of the rows whose columns in ``where`` have one of the given values.

        None instead of values means all rows. The time of a TIMESTAMP column x is read as x_ms, milliseconds
        since 1970. A column that tables of an older version lack is null. Raises TablesError if the table is not
        there or cannot be read.
        """
        with self._told(table):
            relation = self._query(self._connection, table, columns, where)
            if relation is None:
                return []
            found = (relation.distinct() if distinct else relation).fetchall()
        return [dict(zip(columns, row, strict=True)) for row in found]

    def arrow(self, table: str, where: Where | None = None) -> pa.Table:
        """Return all columns of the table's schema of these rows, with its types."""
        import pyarrow as pa  # noqa: PLC0415 - as is the schema: both are slow to import for a quick look

        from offsetstream.tables.schema import load_schema  # noqa: PLC0415

        schema = load_schema(table).arrow
        with self._told(table):
            relation = self._query(self._connection, table, schema.names, where)
            found: pa.Table = schema.empty_table() if relation is None else pa.table(relation.to_arrow_table())
            return found.cast(schema)

    def stream(
        self, table: str, columns: Sequence[str], where: Where | None = None, *, order: Sequence[str]
    ) -> Iterator[Row]:
        """Yield the same rows sorted by the columns of ``order``, of which a part is in memory at a time."""
        with self._told(table):
            cursor = self._connection.cursor()  # of its own: rows may wait in several at once
            relation = self._query(cursor, table, columns, where)
            if relation is None:
                return
            cursor.execute(relation.sort(*map(ColumnExpression, order)).sql_query())
            while found := cursor.fetchmany(_AT_ONCE):
                for row in found:
                    yield dict(zip(columns, row, strict=True))

    @contextmanager
    def _told(self, table: str) -> Iterator[None]:
        try:
            yield
        except (DeltaError, duckdb.Error, OSError) as error:
            reason = first_line(error)
            raise TablesError(f"cannot read the table {self.location.table(table)}: {reason}") from error

    def _query(
        self, connection: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str], where: Where | None
    ) -> duckdb.DuckDBPyRelation | None:
        relation = self._open(connection, table)
        if relation is None:
            return None
        for column, values in (where or {}).items():
            if values is not None:
                relation = relation.filter(_is_one_of(column, values))
        return relation.select(*(_expression(table, column, relation.columns) for column in columns))

    def _open(self, connection: duckdb.DuckDBPyConnection, table: str) -> duckdb.DuckDBPyRelation | None:
        if table not in self._sources:
            self._sources[table] = self._source(table)
        delta = self._sources[table]
        if "deletionVectors" in (delta.protocol().reader_features or ()):  # of which DuckDB is not told
            rows = QueryBuilder().register("rows", delta).execute("SELECT * FROM rows")
            return connection.from_arrow(rows)
        if "://" in self.location.table(table):  # delta-rs reaches stores that DuckDB has no built-in way to
            return connection.from_arrow(delta.to_pyarrow_dataset())
        # delta-rs gives paths as a URL has them, and DuckDB takes them as patterns.
        files = [_GLOB.sub(r"[\g<0>]", unquote(file)) for file in delta.file_uris()]
        # Files from before a column was added lack it.
        return connection.from_parquet(files, union_by_name=True) if files else None

    def _source(self, table: str) -> DeltaTable:
        path = self.location.table(table)
        try:
            delta = DeltaTable(path)
        except TableNotFoundError as error:
            raise TablesError(
                f"there is no table {path}: name the folder of the tables by --tables, "
                "or make them by 'offsetstream run'"
            ) from error
        refuse_newer(delta)
        return delta


def _config() -> dict[str, str | bool | int | float | list[str]]:
    return {
        # DuckDB must not look for extensions on the network; what it needs here is built in.
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "memory_limit": _MEMORY,
        "preserve_insertion_order": False,
        # Made when it is needed, and removed by DuckDB.
        "temp_directory": str(Path(tempfile.gettempdir()) / f"offsetstream-{uuid.uuid4()}"),
    }


def _is_one_of(column: str, values: Collection[str] | Collection[int]) -> duckdb.Expression:
    # What is not UTF-8, as a command line may be, is in no table.
    possible = [value for value in values if not isinstance(value, str) or is_utf8(value)]
    if not possible:
        return ConstantExpression(False)
    return ColumnExpression(column).isin(*(ConstantExpression(value) for value in possible))


def _expression(table: str, column: str, existing: Sequence[str]) -> duckdb.Expression:
    if column in existing:
        return ColumnExpression(column)
    source = column.removesuffix("_ms")
    if source in existing:
        return FunctionExpression("epoch_ms", ColumnExpression(source)).alias(column)
    from offsetstream.tables.schema import load_schema  # noqa: PLC0415 - it needs Arrow, and this is rare

    if source not in load_schema(table).column_names:
        raise ValueError(f"{table} has no column {column}")
    return ConstantExpression(None).alias(column)
