"""Look-ups: rows of the tables by DuckDB, in a few hundredths of a second, without Spark and Arrow."""

from __future__ import annotations

import gc
import tempfile
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
from duckdb import ColumnExpression, ConstantExpression, FunctionExpression

from offsetstream.errors import TablesError, first_line, is_interrupt
from offsetstream.settings.places import is_utf8
from offsetstream.tables.schema import load_schema
from offsetstream.tables.store import Source, Store, damaged_table, require_version

if TYPE_CHECKING:
    import duckdb


_WITH_ZONE = "TIMESTAMP WITH TIME ZONE"


Row = dict[str, Any]
Where = Mapping[str, Collection[str] | Collection[int] | None]  # column: the allowed values
_FETCH_ROWS = 512  # rows that are Python objects at a time: more do not fit the processor's cache, which is slower
_MEMORY = "400MB"  # sorting spills to disk beyond this


class Lookup:
    """Reads rows of the tables of `store`. Each table stays at the version at which it was first read."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._connection = open_connection()
        self._sources: dict[str, Source] = {}

    def rows(
        self, table: str, columns: Sequence[str], where: Where | None = None, *, distinct: bool = False
    ) -> list[Row]:
        """Return the columns `columns` of the rows whose columns in `where` have one of the given values.

        A column with None instead of values is not checked. Read a TIMESTAMP column x as x_ms, milliseconds since
        1970. A column that all files lack is null. Raises TablesError if the table does not exist or cannot be read.
        """
        with self._translated_errors(table):
            relation = self._query(self._connection, table, columns, where)
            if relation is None:
                return []
            found = (relation.distinct() if distinct else relation).fetchall()
        return [dict(zip(columns, row, strict=True)) for row in found]

    def stream(
        self, table: str, columns: Sequence[str], where: Where | None = None, *, order: Sequence[str]
    ) -> Iterator[Row]:
        """Yield the rows of `rows()`, sorted by the columns of `order`, with only some rows in memory at a time.

        A minus before a column's name sorts it in descending order.
        """
        for rows in self._sorted(table, columns, where, order):
            for row in rows:
                yield dict(zip(columns, row, strict=True))

    def parts(
        self, table: str, columns: Sequence[str], where: Where | None = None, *, order: Sequence[str]
    ) -> Iterator[dict[str, list[Any]]]:
        """Yield the rows of `stream()` in parts, each column as a list: for many rows this is faster than dicts."""
        for rows in self._sorted(table, columns, where, order):
            yield dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))

    def _sorted(
        self, table: str, columns: Sequence[str], where: Where | None, order: Sequence[str]
    ) -> Iterator[list[tuple[Any, ...]]]:
        with self._translated_errors(table):
            cursor = self._connection.cursor()  # its own one, because several streams may be open at once
            relation = self._query(cursor, table, columns, where)
            if relation is None:
                return
            cursor.execute(relation.sort(*map(_sorting, order)).sql_query())
            while found := cursor.fetchmany(_FETCH_ROWS):
                yield found

    @contextmanager
    def _translated_errors(self, table: str) -> Iterator[None]:
        try:
            yield
        except (duckdb.Error, OSError) as error:
            damaged = None if is_interrupt(error) else damaged_table(self.store, table)
            if damaged is not None:
                raise damaged from error
            raise TablesError(f"cannot read the table {self._where(table)}: {first_line(error)}") from error

    def _where(self, table: str) -> str:
        return self._sources[table].where if table in self._sources else table

    def _query(
        self, connection: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str], where: Where | None
    ) -> duckdb.DuckDBPyRelation | None:
        relation = self._open(connection, table)
        if relation is None:
            return None
        for column, values in (where or {}).items():
            if values is not None:
                relation = relation.filter(is_one_of(column, values))
        return relation.select(*(_expression(table, column, relation.columns) for column in columns))

    def _open(self, connection: duckdb.DuckDBPyConnection, table: str) -> duckdb.DuckDBPyRelation | None:
        if table not in self._sources:
            source = self.store.source(table)
            require_version(source)
            self._sources[table] = source
        return self._sources[table].relation(connection)


def open_connection() -> duckdb.DuckDBPyConnection:
    """Return a DuckDB connection for look-ups: in UTC, with limited memory, without network and output."""
    connection = duckdb.connect(config=_config())
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")  # it would mix with a command's output
    return connection


def _config() -> dict[str, str | bool | int | float | list[str]]:
    return {
        # DuckDB must not fetch extensions from the network; all that is needed is built in.
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "memory_limit": _MEMORY,
        "preserve_insertion_order": False,
        # DuckDB creates it when needed, and removes it.
        "temp_directory": str(Path(tempfile.gettempdir()) / f"offsetstream-{uuid.uuid4()}"),
    }


def is_one_of(column: str, values: Collection[str] | Collection[int]) -> duckdb.Expression:
    """Return the condition that the column has one of the values."""
    # A command line may have text that is not UTF-8; no table has such a value.
    possible = [value for value in values if not isinstance(value, str) or is_utf8(value)]
    if not possible:
        return ConstantExpression(False)
    return ColumnExpression(column).isin(*(ConstantExpression(value) for value in possible))


def _sorting(column: str) -> duckdb.Expression:
    return ColumnExpression(column[1:]).desc() if column.startswith("-") else ColumnExpression(column)


def _expression(table: str, column: str, existing: Sequence[str]) -> duckdb.Expression:
    if column in existing:
        return ColumnExpression(column)
    source = column.removesuffix("_ms")
    if source in existing:
        return FunctionExpression("epoch_ms", ColumnExpression(source)).alias(column)
    if source not in load_schema(table).column_names:
        raise ValueError(f"{table} has no column {column}")
    return ConstantExpression(None).alias(column)


def fetch_rows(relation: duckdb.DuckDBPyRelation, order: str = "") -> list[dict[str, Any]]:
    """Return the rows as dicts, sorted by `order` if given; timestamps are in UTC.

    DuckDB takes three times as long if it has to convert timestamps with a zone, so the zone is added here.
    """
    with _garbage_collection_off():
        return _rows(relation, order)


@contextmanager
def _garbage_collection_off() -> Iterator[None]:
    """Turn off Python's garbage collector: its scans would take a third of the time, and rows have no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _rows(relation: duckdb.DuckDBPyRelation, order: str) -> list[dict[str, Any]]:
    columns = relation.columns
    instants = [str(type_) == _WITH_ZONE for type_ in relation.types]
    if order:
        relation = relation.order(order)
    if not any(instants):
        return [dict(zip(columns, row, strict=True)) for row in relation.fetchall()]
    bare = [_without_zone(name) if has else ColumnExpression(name) for name, has in zip(columns, instants, strict=True)]
    rows = [dict(zip(columns, row, strict=True)) for row in relation.select(*bare).fetchall()]
    for name in (name for name, has in zip(columns, instants, strict=True) if has):
        zoned = {instant: _in_utc(instant) for instant in {row[name] for row in rows}}
        for row in rows:
            row[name] = zoned[row[name]]
    return rows


def _in_utc(instant: Any) -> Any:
    # DuckDB returns a year that Python's datetime does not support as text.
    return instant.replace(tzinfo=UTC) if isinstance(instant, datetime) else instant


def _without_zone(column: str) -> duckdb.Expression:
    return FunctionExpression("timezone", ConstantExpression("UTC"), ColumnExpression(column)).alias(column)
