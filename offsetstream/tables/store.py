"""How tables are read and written, whatever keeps them: everything that is asked of it is here.

Today's tables lie at paths (`path_store/`). No path, file or class of the keeper's leaves it, and its errors are
TablesError, `ConflictError` above all. Conditions and queries are in the SQL that
DataFusion and Spark read alike, with the literals of `sql.py`; a query's own table is named `rows`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, NamedTuple

from offsetstream.errors import NoTableError

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from pyspark.sql import DataFrame, SparkSession

    from offsetstream.tables.files import NewFile, TableFiles, TaskWriter
    from offsetstream.tables.merge import Merge
    from offsetstream.tables.schema import ColumnSchema, TableSchema
    from offsetstream.tables.transaction import BatchId

EVERY_ROW = "true"
DEAR_SECONDS = 60.0  # between two of what is done again and again, where the store `is_dear`


class Transaction(NamedTuple):
    """Delta's application transaction: of two commits with the same `app_id` side by side the second fails."""

    app_id: str
    version: int


class StoredColumn(NamedTuple):
    """A column that a table has: its type in Spark SQL's words, and its comment."""

    type: str
    comment: str | None


class Store(ABC):
    """The tables of one cluster. All methods raise TablesError where the tables cannot be reached."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What `--tables` names, for messages."""

    @abstractmethod
    def create(self, schema: TableSchema, properties: Mapping[str, str]) -> None:
        """Create a table with the schema's properties and these, unless it is there."""

    @abstractmethod
    def open(self, name: str) -> Snapshot:
        """Return the table as it is now; NoTableError if there is none."""

    @abstractmethod
    def source(self, name: str) -> Source:
        """Return the table as it is now for a quick look, without what only writers need; NoTableError likewise."""

    @abstractmethod
    def sql_name(self, name: str) -> str:
        """Return what a table is called in Spark's SQL, in whichever session reaches it."""

    @abstractmethod
    def in_spark(self, spark: SparkSession) -> SparkTables:
        """Return the tables for what Spark itself reads and writes."""

    @property
    def needs_spark(self) -> bool:
        """Whether the tables can be reached in a session of Spark's only, which `read_by` gives."""
        return False

    def read_by(self, spark: SparkSession) -> Store:  # noqa: ARG002 - of those that need it
        """Return the same tables, for the session to read and write them where they need one."""
        return self

    @abstractmethod
    def task_writer(self, name: str, batch: BatchId, day: date) -> TaskWriter | None:
        """Return what writes rows of a history in a task of Spark's, as those of a batch and a day.

        None where tasks cannot: their rows then go through Spark.
        """

    @property
    def look_seconds(self) -> float:
        """How long to leave a table alone, at least, between two looks at whether it has changed: looks may cost."""
        return 0.0

    @property
    def is_dear(self) -> bool:
        """Whether each look at a table, and each write, is jobs of Spark's or requests to an object store."""
        return self.needs_spark or self.look_seconds > 0

    def opened(self, name: str) -> Snapshot | None:
        """Return the table as it is now, None if there is none."""
        try:
            return self.open(name)
        except NoTableError:
            return None


class Source(ABC):
    """A table as it was when it was opened, for DuckDB to read; `where` is how messages name it."""

    where: str

    @property
    @abstractmethod
    def properties(self) -> Mapping[str, str]:
        """The table's properties: ours, Delta's, users'."""

    @abstractmethod
    def relation(self, connection: DuckDBPyConnection) -> DuckDBPyRelation | None:
        """Return the rows; None if there are none. A column that older rows lack may be missing."""

    @property
    def row_count(self) -> int | None:
        """How many rows Delta's log says there are, without a look into the files; None where it does not say."""
        return None

    @property
    def files(self) -> Sequence[str]:
        """The files that DuckDB opens by itself, as the relation names them and as they are: none where it does not."""
        return ()

    @property
    @abstractmethod
    def is_read_once(self) -> bool:
        """Whether the relation is a stream: who reads it twice needs a copy."""


class Snapshot(ABC):
    """A table as it was when it was opened or refreshed; `where` is how messages name it.

    What it writes holds only if nobody else wrote to the table since: ConflictError otherwise, and whoever opens it
    again sees what the other one left (`conflict.py`). An append may be let through, but none of two commits with a
    transaction of the same id. Each write is one commit, made whole or not at all; TablesError where it cannot be made
    for what a user did to the table.
    """

    name: str
    where: str

    @property
    @abstractmethod
    def version(self) -> int:
        """The number of its last commit."""

    @property
    @abstractmethod
    def table_id(self) -> str:
        """What no other table has, and another one that is made in its place neither."""

    @property
    @abstractmethod
    def created_at(self) -> datetime:
        """When it was made."""

    @property
    @abstractmethod
    def properties(self) -> Mapping[str, str]:
        """Its properties: ours, Delta's, users'."""

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, StoredColumn]:
        """Its columns by name: ours, and those that a user added."""

    @property
    @abstractmethod
    def arrow(self) -> pa.Schema:
        """The same columns as Arrow has them."""

    @property
    @abstractmethod
    def partitioned_by(self) -> tuple[str, ...]:
        """The columns by which its rows lie apart."""

    @abstractmethod
    def transaction_version(self, app_id: str) -> int | None:
        """Return the version of the last transaction with this id; None if there was none."""

    @abstractmethod
    def written_days(self) -> set[date]:
        """Return the days of which a history has rows."""

    @property
    @abstractmethod
    def files(self) -> TableFiles:
        """The files that it is made of, which are to be kept few."""

    @abstractmethod
    def refresh(self) -> None:
        """Become the table as it is now, at less cost than opening it again."""

    @abstractmethod
    def rows(self, where: str = EVERY_ROW, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
        """Return the rows that fulfil the condition, a part at a time; all columns or those named."""

    @abstractmethod
    def query(self, sql: str, **beside: Snapshot) -> pa.RecordBatchReader:
        """Ask the table, as `rows`, and others of the same store by their names here; texts may be Arrow's views."""

    @abstractmethod
    def append(self, rows: Iterable[pa.Table], *transactions: Transaction) -> None:
        """Append rows; a column that they lack is null."""

    @abstractmethod
    def replace(self, where: str, rows: Iterable[pa.Table], *transactions: Transaction) -> None:
        """Make `rows`, which fulfil the condition, the only ones that do; a column that they lack is null."""

    @abstractmethod
    def merge(self, source: pa.Table, merge: Merge, *transactions: Transaction) -> None:
        """Merge rows that have the columns of our schema and `_deleted`, as `merge` says.

        A merge that changes nothing makes no commit. What a user's columns have of a row stays. DoubledRowsError where
        a key of the source is there more than once, but not where all rows are replaced.
        """

    @abstractmethod
    def append_files(self, files: Sequence[NewFile], *transactions: Transaction) -> None:
        """Append what `TaskWriter` wrote, in one commit; TablesError if it is not there."""

    @abstractmethod
    def commit_nothing(self, *transactions: Transaction) -> None:
        """Commit an empty write, which fails whoever is to commit one of these transactions from an earlier version."""

    @abstractmethod
    def add_columns(self, columns: Sequence[ColumnSchema]) -> None:
        """Add columns, which are null in the rows that are there."""

    @abstractmethod
    def set_comment(self, column: str, comment: str) -> None:
        """Set the comment of a column."""

    @abstractmethod
    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties; those that are not named stay."""

    @abstractmethod
    def rewrite_old_rows(self) -> None:
        """Write anew what an earlier version of the program wrote in a way that not every reader understands."""

    @abstractmethod
    def require_writable(self) -> None:
        """Raise TablesError if users switched something on with which this store cannot write, with the way back."""


class SparkTables(ABC):
    """The tables for a session of Spark's; errors as of `Snapshot`, and whatever else Spark raises."""

    @abstractmethod
    def require_reachable(self) -> None:
        """Raise EnvironmentNotReadyError if the session cannot reach the tables, which are there, or sees others."""

    @abstractmethod
    def frame(self, name: str) -> DataFrame:
        """Return the table's present rows."""

    @abstractmethod
    def append(self, name: str, rows: DataFrame, transaction: Transaction) -> None:
        """Append rows that have all of our columns; skipped if the transaction was made before."""

    @abstractmethod
    def merge(self, source: DataFrame, merge: Merge, transaction: Transaction) -> None:
        """Merge rows as `Snapshot.merge` does, but for doubled keys; skipped if the transaction was made before."""
