"""Run a user's query over tables and views. It cannot reach other files, addresses or settings, and has limits."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import TIMEOUT_MAX, Thread
from typing import TYPE_CHECKING, Any, Self, TypeVar

import duckdb
from duckdb import StatementType

from offsetstream.errors import NoTableError, OffsetstreamError, TablesError, UsageError, first_line
from offsetstream.settings.kinds import MEMORY, bytes_of
from offsetstream.tables.lookup import open_connection
from offsetstream.tables.schema import OPTIONAL_TABLES, all_schemas
from offsetstream.tables.store import Store
from offsetstream.views.files import all_views, needed
from offsetstream.views.reader import INSTANT, ViewReader, nearest_text

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_AGAIN_SECONDS, _STOP_SECONDS = 0.1, 3.0

# Bytes of address space that a process may take beyond twice DuckDB's limit, since the limit of the operating system
# also counts what allocators keep and what stacks of threads reserve.
_UNCOUNTED, _UNCOUNTED_PER_CORE = 1 << 30, 16 << 20
_AT_ONCE = 2048  # rows fetched at a time
_WORD = re.compile(r"\w+")
_SHOW_TABLES = re.compile(r"(?i)\s*show\s+(all\s+)?tables\s*;?\s*")
_NEAREST = re.compile(r"^Candidate bindings: (.+)", re.MULTILINE)
_UNKNOWN = re.compile(r"Table with name (.+?) does not exist")


class QueryError(OffsetstreamError):
    """DuckDB rejected a query, or it exceeded a limit; the message gives the reason."""


@dataclass(frozen=True)
class Limits:
    """What each run of a query may take: memory of DuckDB (`400MB`, `2GB`), and seconds of work.

    The default memory is free next to the job on the machine that docs/reference/sizing.md recommends. It is fixed, so
    that a query that works on one machine works on all. What DuckDB can write to disk does not count.
    """

    memory: str = "1GB"
    seconds: float = 300.0

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise UsageError(f"{self.seconds:g} seconds are no time for a query: give --timeout 300, for example")

    @contextmanager
    def of_process(self) -> Iterator[None]:
        """Limit the memory of this process, which must not have other work, within the context; on Linux only.

        DuckDB does not count what some functions take, such as repeat() and range(): these fail when the process takes
        twice the limit and 1 GiB. Raises QueryError if they do.
        """
        try:
            import resource  # noqa: PLC0415 - Windows has none

            used = re.search(r"^VmData:\s+(\d+) kB", Path("/proc/self/status").read_text("utf-8"), re.MULTILINE)
        except (ImportError, OSError):
            used = None
        if used is None:
            yield
            return
        before = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = (
            int(used[1]) * 1024 + 2 * bytes_of(self.memory) + _UNCOUNTED + _UNCOUNTED_PER_CORE * (os.cpu_count() or 1)
        )
        lowest = min([wanted, *(each for each in before if each != resource.RLIM_INFINITY)])
        resource.setrlimit(resource.RLIMIT_DATA, (lowest, before[1]))
        try:
            yield
        except MemoryError as error:
            raise self.exceeded_memory() from error
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, before)

    def exceeded_memory(self) -> QueryError:
        """Return the error of a query that needs more memory."""
        return QueryError(
            f"the query needs more memory than --memory {self.memory}: select less, or give it more, such as "
            "--memory 4GB (in Python memory='4GB')"
        )

    def exceeded_time(self) -> QueryError:
        """Return the error of a query that needs more time."""
        return QueryError(
            f"the query was stopped after --timeout {self.seconds:g} seconds: select less, or give it more, such as "
            "--timeout 3600 (in Python timeout=3600)"
        )


_DEFAULTS = Limits()


def relation_names() -> list[str]:
    """Return the names of all tables and views that a query may read."""
    return [*all_schemas(), *OPTIONAL_TABLES, *(view.name for view in all_views().values() if not view.is_helper)]


class Query:
    """A user's SELECT over all tables and views; `at` is the instant of views that need one.

    It needs a reader of its own, because it locks the connection: DuckDB then opens only the tables' own files and
    accepts no settings. Raises UsageError unless the query is one SELECT, or if `at` is missing; QueryError if DuckDB
    rejects the query or it exceeds a limit; TablesError if tables cannot be read.
    """

    def __init__(self, reader: ViewReader, query: str, at: datetime | None = None, limits: Limits = _DEFAULTS) -> None:
        with _limited(reader.connection, limits):
            _require_select(reader.connection, query)
            _, missing = _define(reader, _words(query), at)
        self._begin(query, reader.connection, reader.files, missing, limits)

    @classmethod
    def over_clusters(
        cls,
        stores: Mapping[str, Store],
        query: str,
        at: datetime | None,
        unreadable: Callable[[str, TablesError], None],
        limits: Limits = _DEFAULTS,
    ) -> Self:
        """Return a query over the tables and views of many clusters, with a first column `cluster`.

        A cluster that lacks a table of the query, or whose tables cannot be read, is passed to `unreadable`.
        """
        lacking, made = dict[str, dict[str, NoTableError]](), cls.__new__(cls)

        def define(cluster: str, reader: ViewReader) -> list[str]:
            with _limited(reader.connection, limits):
                _require_select(reader.connection, query)
                names, lacking[cluster] = _define(reader, _words(query), at)
            return names

        connection, files = over_clusters(stores, define, unreadable)
        missing = {name: error for errors in lacking.values() for name, error in errors.items()}
        read = {name for name in missing if _reads(connection, query, name)}
        for cluster, errors in lacking.items():
            if of_query := read & errors.keys():
                unreadable(cluster, errors[min(of_query)])
        made._begin(query, connection, files, missing, limits)
        return made

    def _begin(
        self,
        query: str,
        connection: duckdb.DuckDBPyConnection,
        files: Sequence[str],
        missing: Mapping[str, NoTableError],
        limits: Limits,
    ) -> None:
        self._query, self._connection, self._missing, self._limits = _listed(query), connection, missing, limits
        self._seconds_left = limits.seconds
        _lock(connection, files)
        with self._told():
            self.columns = _unique(self._interruptible(lambda: connection.sql(self._query).columns))

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Run the query and yield its rows. Only some rows are in memory at a time."""
        with self._told():
            self._seconds_left = self._limits.seconds
            self._interruptible(lambda: self._connection.execute(self._query))
            while found := self._interruptible(lambda: self._connection.fetchmany(_AT_ONCE)):
                yield from found

    def arrow(self) -> pa.Table:
        """Run the query and return all rows as Arrow."""
        with self._told():
            self._seconds_left = self._limits.seconds
            found = self._interruptible(lambda: self._connection.sql(self._query).to_arrow_table())
        return found.rename_columns(self.columns)

    def _interruptible(self, call: Callable[[], T]) -> T:
        """Call in a separate thread: DuckDB checks Ctrl-C only between its tasks, and one task may never end."""
        outcome = Future[T]()

        def run() -> None:
            try:
                outcome.set_result(call())
            except BaseException as error:
                outcome.set_exception(error)

        thread, started = Thread(target=run, daemon=True), time.monotonic()
        try:
            thread.start()
            is_done = wait([outcome], min(max(self._seconds_left, 0), TIMEOUT_MAX)).done
        except KeyboardInterrupt:
            self._stop(thread)
            raise
        self._seconds_left -= time.monotonic() - started
        if not is_done:
            self._stop(thread)
            raise self._limits.exceeded_time()
        return outcome.result()

    def _stop(self, thread: Thread) -> None:
        """Interrupt DuckDB. A task that does not end by this ends with the process."""
        deadline = time.monotonic() + _STOP_SECONDS
        while thread.is_alive() and time.monotonic() < deadline:
            self._connection.interrupt()  # lost if the query has only just started
            thread.join(_AGAIN_SECONDS)

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
                raise QueryError(f"there is no table or view {name}{known}") from error
            raise _refused(error) from error
        except duckdb.OutOfMemoryException as error:
            raise self._limits.exceeded_memory() from error
        except duckdb.Error as error:
            raise _refused(error) from error


@contextmanager
def _limited(connection: duckdb.DuckDBPyConnection, limits: Limits) -> Iterator[None]:
    """Limit the memory of what defines tables and views, too: some views are stored."""
    try:
        connection.execute("SET memory_limit = ?", [MEMORY.read(limits.memory)])
        yield
    except duckdb.OutOfMemoryException as error:
        raise limits.exceeded_memory() from error
    except TablesError as error:
        if isinstance(error.__cause__, duckdb.OutOfMemoryException):
            raise limits.exceeded_memory() from error
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error


def _refused(error: duckdb.Error) -> QueryError:
    """Return DuckDB's error as one line, with the nearest known columns."""
    nearest = _NEAREST.search(str(error))
    known = "; nearest: " + ", ".join(re.findall(r'"(\w+)"', nearest[1])) if nearest else ""
    return QueryError(f"DuckDB refuses the query: {first_line(error)}{known}")


def _unique(names: list[str]) -> list[str]:
    """Make column names unique: add a number to repeated ones."""
    found: list[str] = []
    for name in names:
        number, own = 1, name
        while own in found:
            number, own = number + 1, f"{name}_{number}"
        found.append(own)
    return found


def _listed(query: str) -> str:
    """Return a query for the names if the query is SHOW TABLES: DuckDB knows only the names that a query uses."""
    if not _SHOW_TABLES.fullmatch(query):
        return query
    return f"SELECT unnest({sorted(relation_names())}) AS name"


def _require_select(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    try:
        statements = connection.extract_statements(query)
    except duckdb.Error as error:
        raise _refused(error) from error
    if [statement.type for statement in statements] != [StatementType.SELECT]:
        raise UsageError("sql takes one SELECT and changes nothing: give a query such as 'SELECT * FROM lag'")


def _reads(connection: duckdb.DuckDBPyConnection, query: str, view: str) -> bool:
    """Return whether a query really reads an existing view, not only contains its name as a word."""
    connection.begin()
    try:
        connection.execute(f'DROP VIEW "{view}"')
        connection.sql(query)
    except duckdb.CatalogException as error:
        found = _UNKNOWN.search(str(error))
        return found is not None and found[1] == view
    except duckdb.Error:  # reported when the query runs
        return False
    finally:
        connection.rollback()
    return False


def _words(query: str) -> set[str]:
    return set(_WORD.findall(query.lower()))


def _define(reader: ViewReader, words: set[str], at: datetime | None) -> tuple[list[str], dict[str, NoTableError]]:
    """Define the tables and views that the query's words name; return the defined and the missing names."""
    missing: dict[str, NoTableError] = {}
    if "information_schema" in words:  # which lists what is defined
        views = all_views()
        words = words | {name for name in relation_names() if at or name not in views or not views[name].is_at}
    for name in [*all_schemas(), *OPTIONAL_TABLES]:
        if name in words:
            try:
                reader.define_table(name)
            except NoTableError as error:
                missing[name] = error
    for name, wanted in all_views().items():
        if name not in words:
            continue
        if wanted.is_at and at is None:
            raise UsageError(f"the view {name} needs an instant: {INSTANT}")
        try:
            for view in needed(name):
                reader.define_view(view, at)
        except NoTableError as error:
            missing[name] = error
    return [name for name in words if reader.has(name)], missing


def _lock(connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> None:
    """Allow only the tables' own files, not even Python variables; then lock the settings."""
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET allow_persistent_secrets = false")
    paths = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    connection.execute(f"SET allowed_paths = [{paths}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def over_clusters(
    stores: Mapping[str, Store],
    define: Callable[[str, ViewReader], list[str]],
    unreadable: Callable[[str, TablesError], None],
) -> tuple[duckdb.DuckDBPyConnection, list[str]]:
    """Return a DuckDB connection in which each name has the rows of all clusters, and the files that it reads.

    `define` defines the needed names in a cluster's reader and returns them; each cluster has a DuckDB schema. A
    cluster whose tables cannot be read is passed to `unreadable` and has no rows.
    """
    connection = open_connection()
    files: list[str] = []
    clusters_of: dict[str, list[str]] = {}
    for cluster, store in stores.items():
        connection.execute(f"CREATE SCHEMA {_schema(cluster)}")
        connection.execute(f"USE {_schema(cluster)}")
        reader = ViewReader(store, connection=connection)
        try:
            names = define(cluster, reader)
        except TablesError as error:
            unreadable(cluster, error)
            continue
        files += reader.files
        for name in names:
            clusters_of.setdefault(name, []).append(cluster)
    connection.execute("USE main")
    for name, clusters in clusters_of.items():
        connection.execute(f'CREATE VIEW "{name}" AS ' + " UNION ALL ".join(_rows(each, name) for each in clusters))
    return connection, files


def _rows(cluster: str, name: str) -> str:
    return f"SELECT '{cluster}' AS cluster, * FROM {_schema(cluster)}.\"{name}\""  # noqa: S608 - names are checked


def _schema(cluster: str) -> str:
    return f'"cluster {cluster}"'  # a cluster may be named main
