"""A query of the user's over tables and views, which reaches nothing else: no other file, no address, no setting."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime
from threading import Thread
from typing import Any, TypeVar

import duckdb
from duckdb import StatementType

from offsetstream.errors import NoTableError, OffsetstreamError, UsageError, first_line
from offsetstream.tables.beside import BESIDE
from offsetstream.tables.schema import all_schemas
from offsetstream.tables.store import Store
from offsetstream.views.files import all_views, needed
from offsetstream.views.nearest import nearest_text
from offsetstream.views.reader import ViewReader

T = TypeVar("T")

_AGAIN_SECONDS = 0.1
_AT_ONCE = 2048  # rows that are Python's at a time
_WORD = re.compile(r"\w+")
_UNKNOWN = re.compile(r"Table with name (.+?) does not exist")


class QueryError(OffsetstreamError):
    """A query that DuckDB refuses; the message says why."""


def relation_names() -> list[str]:
    """Return the names of all tables and views that a query may read."""
    return [*all_schemas(), *BESIDE, *(view.name for view in all_views().values() if not view.is_helper)]


class Query:
    """A SELECT of the user's over all tables and views; `at` is the instant of the views that have one.

    DuckDB opens the tables' own files only, and takes no setting any more. Raises UsageError for another statement than
    one SELECT, or where `at` is missing; QueryError for one that DuckDB refuses; TablesError for tables that cannot be
    read.
    """

    def __init__(self, store: Store, query: str, at: datetime | None = None) -> None:
        reader = ViewReader(store)
        self._query, self._connection = query, reader.connection
        _require_select(self._connection, query)
        self._missing = _define(reader, set(_WORD.findall(query.lower())), at)
        _lock(reader)
        with self._told():
            self.columns: list[str] = self._connection.sql(query).columns

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Run it, and yield the rows, of which a part is in memory at a time."""
        with self._told():
            self._interruptible(lambda: self._connection.execute(self._query))
            while found := self._interruptible(lambda: self._connection.fetchmany(_AT_ONCE)):
                yield from found

    def _interruptible(self, call: Callable[[], T]) -> T:
        """Call in a thread of its own: DuckDB hears Ctrl-C between its tasks only, of which one may have no end."""
        outcome = Future[T]()

        def run() -> None:
            try:
                outcome.set_result(call())
            except BaseException as error:
                outcome.set_exception(error)

        thread = Thread(target=run, daemon=True)
        try:
            thread.start()
            return outcome.result()
        except KeyboardInterrupt:
            while thread.is_alive():
                self._connection.interrupt()  # forgotten where the query only begins
                thread.join(_AGAIN_SECONDS)
            raise

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except duckdb.CatalogException as error:
            name = found[1] if (found := _UNKNOWN.search(str(error))) else ""
            if name in self._missing:
                raise self._missing[name] from error
            if name:
                known = nearest_text(name, relation_names())
                raise QueryError(f"there is no table or view {name}{known}; sql --list tells all") from error
            raise _refused(error) from error
        except duckdb.Error as error:
            raise _refused(error) from error


def _refused(error: duckdb.Error) -> QueryError:
    """Return what DuckDB says of a query, without the lines that point into it."""
    return QueryError(f"DuckDB refuses the query: {first_line(error)}")


def _require_select(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    try:
        statements = connection.extract_statements(query)
    except duckdb.Error as error:
        raise _refused(error) from error
    if [statement.type for statement in statements] != [StatementType.SELECT]:
        raise UsageError("sql takes one SELECT, and changes nothing: give a query such as 'SELECT * FROM lag'")


def _define(reader: ViewReader, words: set[str], at: datetime | None) -> dict[str, NoTableError]:
    """Define what the query's words name, and what that reads; return the names that have no table."""
    missing: dict[str, NoTableError] = {}
    for name in [*all_schemas(), *BESIDE]:
        if name in words:
            try:
                reader.define_table(name)
            except NoTableError as error:
                missing[name] = error
    for name, wanted in all_views().items():
        if name not in words:
            continue
        if wanted.is_at and at is None:
            raise UsageError(f"the view {name} is of an instant: say which by --at, as --at 10m or --at 03:00")
        try:
            for view in needed(name):
                reader.define_view(view, at)
        except NoTableError as error:
            missing[name] = error
    return missing


def _lock(reader: ViewReader) -> None:
    """Leave the tables' own files, and nothing else, not even a Python variable of ours; then no setting any more."""
    connection = reader.connection
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET allow_persistent_secrets = false")
    files = ", ".join("'" + file.replace("'", "''") + "'" for file in reader.files)
    connection.execute(f"SET allowed_paths = [{files}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
