"""The interface to the tables, whichever store keeps them: a folder (`path_store/`) or a catalog (`catalog_store/`).

Callers see no path, file or class of a store. Its errors are TablesError, most often `ConflictError`. Conditions and
queries are SQL that both DataFusion and Spark understand, with the literals of `sql.py`. In a query, the table itself
is named `rows`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from offsetstream.errors import DamagedTableError, NoTableError, TablesError
from offsetstream.tables.files import TableFiles, TableFolder
from offsetstream.tables.schema import PROPERTY, SCHEMA_VERSION, TableSchema
from offsetstream.tables.sql import in_partitions, sql_text

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from pyspark.sql import DataFrame, SparkSession

    from offsetstream.tables.task_rows import TaskRows, TaskWriter

EVERY_ROW = "true"
_MAX_IN_CONDITION = 500  # groups; with more, all rows of their partitions are read
COSTLY_CHECK_SECONDS = 60.0  # least time between two repeated actions in a store that `is_costly`


class Transaction(NamedTuple):
    """Delta's application transaction: of two concurrent commits with the same `app_id`, the second fails."""

    app_id: str
    version: int


@dataclass(frozen=True)
class Merge:
    """The rules of a merge: insert new keys, update rows that differ, delete keys with `_deleted`."""

    schema: TableSchema
    newer_only: bool = False  # an older record never overwrites a newer one
    replace_where: str | None = None  # the source replaces all rows of the table that match, even newer ones


class Store(ABC):
    """The tables of one cluster. All methods raise TablesError if the tables cannot be reached."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The place as `--tables` names it, for messages."""

    @abstractmethod
    def create(self, schema: TableSchema, properties: Mapping[str, str]) -> None:
        """Create a table, with the schema's properties and `properties`, unless it exists."""

    @abstractmethod
    def open(self, name: str) -> Snapshot:
        """Open the table at its current version; NoTableError if it does not exist."""

    @abstractmethod
    def source(self, name: str) -> Source:
        """Open the table for a look-up, without what only writers need; NoTableError if it does not exist."""

    @abstractmethod
    def sql_name(self, name: str) -> str:
        """Return the table's name in Spark SQL, valid in any session that can reach it."""

    @abstractmethod
    def in_spark(self, spark: SparkSession) -> SparkTables:
        """Return the tables for reads by Spark."""

    @property
    def needs_spark(self) -> bool:
        """Whether only a Spark session can reach the tables; `read_by` sets the session."""
        return False

    def read_by(self, spark: SparkSession) -> Store:  # noqa: ARG002 - only some stores need it
        """Return the same tables, with the Spark session that reads and writes them if they need one."""
        return self

    @abstractmethod
    def task_writer(self, name: str, signature: Mapping[str, Any]) -> TaskWriter:
        """Return a writer for rows of a table, for use in a Spark task. Rows of a history get this signature."""

    @property
    def check_seconds(self) -> float:
        """Least number of seconds between two checks whether a table has changed: each check may cost money or time."""
        return 0.0

    @property
    def is_costly(self) -> bool:
        """Whether each check or write of a table runs Spark jobs or sends requests to an object store."""
        return self.needs_spark or self.check_seconds > 0

    @abstractmethod
    def files(self, table: Snapshot) -> TableFiles:
        """Return the files of an opened table, for compaction and clean-up."""

    def for_job(self) -> Store:
        """Return this store for a job, to which other errors tell what became of the tables that it opened.

        OlderCopyError if an older copy took a table's place; StoreFaultError if all tables are gone, and may come back.
        """
        return self

    def folder(self, name: str) -> TableFolder | None:  # noqa: ARG002 - only some stores have one
        """Return the table's files for repair; None if the store keeps the files itself."""
        return None

    def opened(self, name: str) -> Snapshot | None:
        """Open the table at its current version; None if it does not exist."""
        try:
            return self.open(name)
        except NoTableError:
            return None


class Source(ABC):
    """A table at the version that was opened, for DuckDB to read; `where` is its name in messages."""

    where: str

    @property
    @abstractmethod
    def properties(self) -> Mapping[str, str]:
        """The table's properties: ours, Delta's and the user's."""

    @abstractmethod
    def relation(self, connection: DuckDBPyConnection) -> DuckDBPyRelation | None:
        """Return the rows; None if the table is empty. A column that all rows lack may be missing."""

    @property
    def row_count(self) -> int | None:
        """Number of rows according to Delta's log, without reading the files; None if the log does not say."""
        return None

    @property
    def files(self) -> Sequence[str]:
        """The files that DuckDB opens itself, as the relation names them and by their real names; may be empty."""
        return ()

    @property
    @abstractmethod
    def is_read_once(self) -> bool:
        """Whether the relation is a stream: to read it twice, make a copy."""


class Snapshot(ABC):
    """A table at the version that was opened or refreshed; `where` is its name in messages.

    A write succeeds only if nobody else has written to the table since. Otherwise it raises ConflictError: open the
    table again to see the other commit (`again_on_conflict`). An append may succeed nevertheless, but never both of two
    concurrent commits with a transaction of the same id. Each write is one atomic commit. It raises TablesError if a
    user's change to the table (a feature, a constraint) makes it impossible.
    """

    name: str
    where: str

    @property
    @abstractmethod
    def version(self) -> int:
        """The number of the last commit."""

    @property
    @abstractmethod
    def table_id(self) -> str:
        """A unique id: a table that is created again in the same place has another one."""

    @property
    @abstractmethod
    def created_at(self) -> datetime:
        """The time at which the table was created."""

    @property
    @abstractmethod
    def properties(self) -> Mapping[str, str]:
        """The table's properties: ours, Delta's and the user's."""

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, str]:
        """The Spark SQL types of the columns by name: of ours, and of those that a user added."""

    @property
    @abstractmethod
    def arrow(self) -> pa.Schema:
        """The columns as an Arrow schema."""

    @property
    @abstractmethod
    def partitioned_by(self) -> tuple[str, ...]:
        """The partition columns."""

    @abstractmethod
    def transaction_version(self, app_id: str) -> int | None:
        """Return the version of the last transaction with this id; None if there was none."""

    @abstractmethod
    def written_days(self) -> set[date]:
        """Return the days (`written_day`) on which the rows of a history were written."""

    @abstractmethod
    def refresh(self) -> None:
        """Move to the table's current version; this is cheaper than to open it again."""

    @abstractmethod
    def rows(self, where: str = EVERY_ROW, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
        """Return the rows that match the condition, part by part; all columns, or those in `columns`."""

    def rows_of_groups(self, groups: pa.Table, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
        """Return at least all rows of the groups that the rows `groups` belong to, and perhaps those of others."""
        import pyarrow.compute as pc  # noqa: PLC0415 - look-ups do not need it

        where = in_partitions(sorted(pc.unique(groups["offsets_partition"]).to_pylist()))
        ids = pc.unique(groups["group_id"])
        if len(ids) <= _MAX_IN_CONDITION:
            where += f" AND group_id IN ({', '.join(map(sql_text, ids.to_pylist()))})"
        return self.rows(where, columns)

    @abstractmethod
    def query(self, sql: str, **others: Snapshot) -> pa.RecordBatchReader:
        """Run a query on the table (`rows`) and on other tables of the same store, by their keyword names.

        Text columns of the result may be Arrow string views.
        """

    @abstractmethod
    def append(self, rows: Iterable[pa.Table], *transactions: Transaction) -> None:
        """Append rows; columns that they lack become null."""

    @abstractmethod
    def replace(self, where: str, rows: Iterable[pa.Table], *transactions: Transaction) -> None:
        """Replace all rows that match the condition by `rows`, which must match it; missing columns become null."""

    @abstractmethod
    def merge(self, source: pa.Table, merge: Merge, *transactions: Transaction) -> None:
        """Merge rows, which have the columns of our schema and `_deleted`, by the rules of `merge`.

        A merge that changes nothing makes no commit. A row keeps the values of a user's columns. Raises
        DoubledRowsError if the table has a key of the source more than once, except with `replace_where`.
        """

    @abstractmethod
    def append_from_tasks(self, rows: TaskRows, *transactions: Transaction) -> None:
        """Append rows that tasks made, in one commit; TablesError if a file is missing."""

    @abstractmethod
    def replace_from_tasks(self, where: str, rows: TaskRows, *transactions: Transaction) -> None:
        """Replace all rows of a state table that match the condition by rows that tasks made, in one commit.

        A row keeps the values of a user's columns.
        """

    @abstractmethod
    def commit_nothing(self, *transactions: Transaction) -> None:
        """Commit an empty write, so that commits of these transactions from an earlier version fail."""

    @abstractmethod
    def require_writable(self) -> None:
        """Raise TablesError if a user turned on a feature that this store cannot write; it says how to undo it."""


class SparkTables(ABC):
    """The tables for reads by a Spark session. Raises the errors of `Snapshot`, and Spark's own."""

    @abstractmethod
    def require_reachable(self) -> None:
        """Raise EnvironmentNotReadyError if the session cannot reach the existing tables, or finds other tables."""

    @abstractmethod
    def frame(self, name: str) -> DataFrame:
        """Return the table's current rows."""


def require_version(table: Snapshot | Source, *, may_be_users: bool = False) -> None:
    """Raise TablesError if the table has another schema version, or none: then offsetstream did not create it.

    `may_be_users`: a user may have created the table, so it may have none.
    """
    found = table.properties.get(PROPERTY)
    if found is None and not may_be_users:
        raise TablesError(
            f"the table {table.where} has no schema version, so offsetstream did not create it: name another place "
            "with --tables"
        )
    if found not in (None, str(SCHEMA_VERSION)):
        raise TablesError(
            f"the table {table.where} has schema version {found}, and this offsetstream knows version "
            f"{SCHEMA_VERSION}: use the offsetstream that wrote it, or name another place with --tables, where the job "
            "loads everything again"
        )


def damaged_table(store: Store, name: str) -> DamagedTableError | None:
    """Return an error that names the first damaged file of a table; None if no file is, or if nobody can tell."""
    with suppress(Exception):  # each store has its own errors; the one that led here is told then
        if (folder := store.folder(name)) is not None:
            return folder.damaged()
    return None
