"""A table of a catalog, opened by Spark: reads use its version, and commits are based on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from offsetstream.errors import TablesError
from offsetstream.tables.catalog_store import writes
from offsetstream.tables.catalog_store.commits import APPENDS, CHANGES, TableState, table_state
from offsetstream.tables.catalog_store.errors import translated_errors
from offsetstream.tables.catalog_store.files import CatalogFiles
from offsetstream.tables.catalog_store.reads import SMALL_BYTES, arrow_schema, batches_of
from offsetstream.tables.catalog_store.store import CatalogStore
from offsetstream.tables.matching import Merge
from offsetstream.tables.schema import HISTORY_DAY, is_history, load_schema
from offsetstream.tables.sql import quoted
from offsetstream.tables.store import EVERY_ROW, Snapshot, Source, SparkTables, Transaction
from offsetstream.tables.task_rows import TaskRows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

    from offsetstream.tables.catalog_store.store import CatalogStore


_APPEND_ONLY = "delta.appendOnly"
_SAME_SIZE = 20  # versions; a table hardly grows within these, so its size is not read again


class CatalogSnapshot(Snapshot):
    """A table of a catalog store. `store`, `state` and `table` (its SQL name) are only for the store's own modules."""

    def __init__(self, store: CatalogStore, name: str) -> None:
        self.store = store
        self.name = name
        self.where = f"{store.name}.{name}"
        self.table = store.table(name)
        self._state = (store.committed or {}).get(name)
        self._is_newest = self._state is None  # whether the version was read, and is not the one of the last own commit
        if self._state is None:
            with self.asking():
                self.state = table_state(store.spark, self.table)

    @property
    def state(self) -> TableState:
        """The version of the table, its transactions, and our commits."""
        assert self._state is not None  # noqa: S101 - set at the start
        return self._state

    @state.setter
    def state(self, state: TableState) -> None:
        if self._state is None or state.version != self._state.version:
            self.__dict__.pop("frame", None)
            self.__dict__.pop("_detail", None)
        self._state, self._is_newest = state, True
        if self.store.committed is not None:
            self.store.committed[self.name] = state

    @contextmanager
    def asking(self, what: str = "read") -> Iterator[None]:
        """Translate Spark's errors. After one, a job opens the table anew: what is known of it may be old."""
        try:
            with translated_errors(self.where, what):
                yield
        except TablesError:
            if self.store.committed is not None:
                self.store.committed.pop(self.name, None)
            raise

    @property
    def version(self) -> int:
        """The number of the last commit."""
        return self.state.version

    @property
    def table_id(self) -> str:
        """The id in Delta's metadata."""
        return str(self._detail["id"])

    @property
    def created_at(self) -> datetime:
        """The time at which the table was created."""
        created: datetime = self._detail["createdAt"]  # Row has times in this machine's time zone
        return created.astimezone(UTC)

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return dict(self._detail["properties"])

    @property
    def columns(self) -> Mapping[str, str]:
        """The Spark SQL types of the columns by name."""
        return {field.name: field.dataType.simpleString().upper() for field in self.frame.schema.fields}

    @property
    def arrow(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        return arrow_schema(self.frame)

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """The partition columns."""
        return tuple(self._detail["partitionColumns"])

    @property
    def files_and_bytes(self) -> tuple[int, int]:
        """Number of the current data files, and their size in bytes."""
        return self._detail["numFiles"] or 0, self._detail["sizeInBytes"] or 0

    @cached_property
    def frame(self) -> DataFrame:
        """The rows as a DataFrame."""
        with self.asking():
            return self.store.spark.sql(self._at_version)

    @property
    def _at_version(self) -> str:
        version = f"VERSION AS OF {self.version}" if self._is_newest else ""  # else also what others committed since
        return f"SELECT * FROM {self.table} {version}"  # noqa: S608 - our own name

    @cached_property
    def _detail(self) -> Row:
        with self.asking():
            (row,) = self.store.spark.sql(f"DESCRIBE DETAIL {self.table}").collect()
        return row

    @property
    def _is_small(self) -> bool:
        """Whether all rows can be read at once. The size may be some versions old, because to get it is a Spark job."""
        version, size = self.store.sizes.get(self.name, (-_SAME_SIZE, 0))
        if self.version - version >= _SAME_SIZE:
            size = self.files_and_bytes[1]
            self.store.sizes[self.name] = (self.version, size)
        return size <= SMALL_BYTES

    def transaction_version(self, app_id: str) -> int | None:
        """Return the version of the last transaction with this id; None if there was none."""
        return self.state.transactions.get(app_id)

    def written_days(self) -> set[date]:
        """Return the days on which a history's rows were written; a null, which only a user can write, is skipped."""
        found = self.query(f"SELECT DISTINCT {HISTORY_DAY} AS day FROM rows").read_all()  # noqa: S608 - our own name
        return set(found["day"].drop_null().to_pylist())

    @property
    def files(self) -> CatalogFiles:
        """The table's files, as far as SQL shows them."""
        return CatalogFiles(self)

    def refresh(self) -> None:
        """Move to the current version by reading the commits since."""
        with self.asking():
            self.state = table_state(self.store.spark, self.table, self.state)

    def rows(self, where: str = EVERY_ROW, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
        """Return the rows that match the condition, part by part; all columns, or those in `columns`."""
        selected = ", ".join(map(quoted, columns)) or "*"
        found = self.query(f"SELECT {selected} FROM rows WHERE {where}")  # noqa: S608 - our own SQL
        return (pa.Table.from_batches([batch]) for batch in found if batch.num_rows)

    def query(self, sql: str, **others: Snapshot) -> pa.RecordBatchReader:
        """Run the query with Spark; each table is a common table expression at its version."""
        named = {"rows": self, **others}
        tables = [
            f"{name} AS ({each._at_version})" for name, each in named.items() if isinstance(each, CatalogSnapshot)
        ]
        with self.asking():
            frame = self.store.spark.sql(f"WITH {', '.join(tables)} {sql}")
        return batches_of(frame, self.where, is_small=self._is_small)

    def append(self, rows: Iterable[pa.Table], *transactions: Transaction) -> None:
        """Append rows; columns that they lack become null."""
        writes.append_rows(self, rows, transactions)

    def replace(self, where: str, rows: Iterable[pa.Table], *transactions: Transaction) -> None:
        """Replace all rows that match the condition by `rows`; columns that they lack become null."""
        writes.replace(self, where, writes.to_frame(self, rows), transactions)

    def merge(self, source: pa.Table, merge: Merge, *transactions: Transaction) -> None:
        """Merge rows: Arrow computes the changes; the memory needed depends on the source's size only."""
        writes.merge_rows(self, source, merge, transactions)

    def append_from_tasks(self, rows: TaskRows, *transactions: Transaction) -> None:
        """Append packed rows; a user's columns are null."""
        found = rows.unpacked(load_schema(self.name).arrow)
        users = [field for field in self.frame.schema if field.name not in found.columns]
        missing = {field.name: F.lit(None).cast(field.dataType) for field in users}
        writes.append(self, found.withColumns(missing) if missing else found, transactions)

    def replace_from_tasks(self, where: str, rows: TaskRows, *transactions: Transaction) -> None:
        """Replace all rows that match the condition by packed rows."""
        found = rows.unpacked(load_schema(self.name).arrow)
        writes.replace(self, where, writes.with_users_columns_of(self, where, found), transactions)

    def commit_nothing(self, *transactions: Transaction) -> None:
        """Commit an empty write of each kind that a writer may have started; ConflictError after another commit."""
        for kind in (CHANGES, APPENDS) if is_history(self.name) else (CHANGES,):
            writes.append(self, self.frame.limit(0), transactions, kind)

    def require_writable(self) -> None:
        """Raise TablesError if the table is append-only; it says how to undo that. Spark can write all else."""
        if self.properties.get(_APPEND_ONLY, "false").lower() == "true":
            raise TablesError(
                f"the table {self.where} has {_APPEND_ONLY}=true, so the job cannot write to it: undo it in Spark "
                f"SQL with ALTER TABLE {self.where} SET TBLPROPERTIES ('{_APPEND_ONLY}' = 'false')"
            )


class CatalogSource(Source):
    """A table at the version that was opened."""

    def __init__(self, table: CatalogSnapshot) -> None:
        self._table = table
        self.where = table.where

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self._table.properties

    def relation(self, connection: DuckDBPyConnection) -> DuckDBPyRelation | None:
        """Return the rows; None if the table is empty."""
        if not self._table.files_and_bytes[0]:
            return None
        return connection.from_arrow(self._table.query("SELECT * FROM rows"))

    @property
    def is_read_once(self) -> bool:
        """True: Spark returns the rows as a stream."""
        return True


class CatalogSpark(SparkTables):
    """The tables of a catalog store, in its session."""

    def __init__(self, store: CatalogStore) -> None:
        self._store = store

    def require_reachable(self) -> None:
        """Do nothing: the session has already read the lease."""

    def frame(self, name: str) -> DataFrame:
        """Return the table's current rows."""
        with translated_errors(f"{self._store.name}.{name}"):
            return self._store.spark.table(self._store.table(name))
