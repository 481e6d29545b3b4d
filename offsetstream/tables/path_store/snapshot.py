"""A table opened by delta-rs: DataFusion reads it; writes are appends, overwrites of some rows, or new files for old.

Of delta-rs's ways (1.6) to change rows, two are safe: an overwrite with a condition, which fails if another commit
removed the files that it read, and a transaction of files that fails beside any other commit. With others, an OPTIMIZE
in between would double every row. And all readers can filter the files of both. MERGE, UPDATE and DELETE store text
columns as `string_view` in the files' Arrow schema, which a pyarrow dataset cannot filter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Field, QueryBuilder, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.schema import PrimitiveType

from offsetstream.errors import ConflictError, TablesError
from offsetstream.tables.matching import Merge, with_all_columns
from offsetstream.tables.path_store.errors import REACH, is_remote, reason, translated_errors
from offsetstream.tables.path_store.features import checks_rows, has_deletion_vectors, refuse_features
from offsetstream.tables.path_store.files import PathFiles
from offsetstream.tables.path_store.group_files import GroupFiles, hashes_of
from offsetstream.tables.path_store.seen import SeenTables
from offsetstream.tables.path_store.writes import (
    append_written,
    commit_of,
    committing,
    merge_on_path,
    replace_by_written,
)
from offsetstream.tables.schema import HISTORY_DAY, ColumnSchema, TableSchema, is_by_group
from offsetstream.tables.store import EVERY_ROW, Snapshot, Transaction
from offsetstream.tables.task_rows import TaskRows

# Delta's type names by those of Spark SQL.
_DELTA_TYPES = {
    "INT": "integer",
    "BIGINT": "long",
    "STRING": "string",
    "BOOLEAN": "boolean",
    "DOUBLE": "double",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
}
_SQL_TYPES = {delta: sql for sql, delta in _DELTA_TYPES.items()}


def create_table(path: str, schema: TableSchema, properties: Mapping[str, str]) -> None:
    """Create a table unless it exists; TablesError if the store rejects it."""
    try:
        DeltaTable.create(
            path,
            Schema([_field(column) for column in schema.columns]),
            mode="ignore",
            partition_by=list(schema.partitioned_by),
            name=schema.name,
            description=schema.comment,
            configuration={**schema.properties, **properties},
            raise_if_key_not_exists=False,
        )
    except (DeltaError, OSError) as error:
        if isinstance(error, CommitFailedError) and DeltaTable.is_deltatable(path):
            return  # another process has just created it
        remedy = REACH if is_remote(path) else "name another folder with --tables"
        raise TablesError(f"cannot create the table {path}: {reason(error)}: {remedy}") from error


class PathSnapshot(Snapshot):
    """A table of a path store. Only the path store's own modules use `delta`."""

    def __init__(self, delta: DeltaTable, name: str, seen: SeenTables | None = None) -> None:
        self.delta = delta
        self.name = name
        self._seen = seen
        self.where = delta.table_uri
        self._version = delta.version()

    @property
    def version(self) -> int:
        """The number of the last commit when the table was opened or refreshed, or of its own later one."""
        return self._version

    @property
    def table_id(self) -> str:
        """The id in Delta's metadata."""
        return str(self.delta.metadata().id)

    @property
    def created_at(self) -> datetime:
        """The time at which the table was created."""
        return datetime.fromtimestamp((self.delta.metadata().created_time or 0) / 1000, UTC)

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.delta.metadata().configuration

    @property
    def columns(self) -> Mapping[str, str]:
        """The Spark SQL types of the columns by name."""
        return {field.name: _sql_type(field) for field in self.delta.schema().fields}

    @property
    def arrow(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        return pa.schema(self.delta.schema())

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """The partition columns."""
        return tuple(self.delta.metadata().partition_columns)

    def transaction_version(self, app_id: str) -> int | None:
        """Return the version of the last transaction with this id; None if there was none."""
        if self._seen is not None:
            return self._seen.transaction_version(self.name, self.delta, app_id)
        return self.delta.transaction_version(app_id)

    def written_days(self) -> set[date]:
        """Return the days of a history's partitions; a null day, which only a user can have written, is skipped."""
        with translated_errors(self.where):
            days = {partition[HISTORY_DAY] for partition in self.delta.partitions()}
        return {date.fromisoformat(day) for day in days if day is not None}

    @property
    def files(self) -> PathFiles:
        """The files in the table's folder."""
        return PathFiles(self)

    def refresh(self) -> None:
        """Move to the current version by reading the commits since."""
        if self._seen is not None:
            self.delta = self._seen.refreshed(self.name, self.delta)
        else:
            with translated_errors(self.where):
                self.delta.update_incremental()
        self._version = self.delta.version()

    def rows(self, where: str = EVERY_ROW, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
        """Return the rows that match the condition, part by part; all columns, or those in `columns`."""
        schema = self.arrow
        selected = list(columns) or schema.names
        # The query starts here, because a write consumes the rows in threads that cannot start one.
        found = self.query(f"SELECT {', '.join(map(_quoted, selected))} FROM rows WHERE {where}")  # noqa: S608 - ours
        types = pa.schema([schema.field(name) for name in selected])
        return (pa.Table.from_batches([batch]).cast(types) for batch in found)

    def rows_of_groups(self, groups: pa.Table, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
        """Return the rows of the files that have the groups; all columns, or those in `columns`."""
        if self._seen is None or not self.has_group_files:
            return super().rows_of_groups(groups, columns)
        files = self.group_files
        return (part for _, part in files.rows(self, files.of(hashes_of(groups)), columns))

    @property
    def has_group_files(self) -> bool:
        """Whether merges rewrite the files of single groups: files have all of the rows, and nobody checks these."""
        has_all_in_files = not self.partitioned_by and not has_deletion_vectors(self.delta)
        return is_by_group(self.name) and has_all_in_files and not checks_rows(self.delta)

    @property
    def group_files(self) -> GroupFiles:
        """The files of this version by group."""
        files = GroupFiles() if self._seen is None else self._seen.group_files(self.name)
        files.look(self)
        return files

    def query(self, sql: str, **others: Snapshot) -> pa.RecordBatchReader:
        """Run the query with DataFusion."""
        # Not to_pyarrow_table(): its reader threads sometimes abort a process that ends soon afterwards.
        reader = QueryBuilder().register("rows", self.delta)
        for name, other in others.items():
            assert isinstance(other, PathSnapshot)  # noqa: S101 - of the same store
            reader = reader.register(name, other.delta)
        with self.reading():
            found = pa.RecordBatchReader.from_stream(reader.execute(sql))
        return pa.RecordBatchReader.from_batches(found.schema, self._parts(found))

    def _parts(self, found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self.reading():
            yield from found

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Translate delta-rs's errors. After one, the table is opened anew: what is known of it may be old."""
        try:
            with translated_errors(self.where):
                yield
        except TablesError:
            if self._seen is not None:
                self._seen.close(self.name)
            raise

    def append(self, rows: Iterable[pa.Table], *transactions: Transaction) -> None:
        """Append rows; columns that they lack become null."""
        self._write(rows, transactions, mode="append")

    def replace(self, where: str, rows: Iterable[pa.Table], *transactions: Transaction) -> None:
        """Replace all rows that match the condition by `rows`; columns that they lack become null."""
        self._write(rows, transactions, mode="overwrite", predicate=where)

    def merge(self, source: pa.Table, merge: Merge, *transactions: Transaction) -> None:
        """Merge rows: Arrow computes the changes; the memory needed depends on the source's size only."""
        merge_on_path(self, source, merge, transactions)

    def append_from_tasks(self, rows: TaskRows, *transactions: Transaction) -> None:
        """Add the files as they are; if a user's CHECK must be verified, append their rows instead."""
        append_written(self, rows.files, transactions)

    def replace_from_tasks(self, where: str, rows: TaskRows, *transactions: Transaction) -> None:
        """Replace all files: by the new ones, and one with the rows that stay."""
        replace_by_written(self, where, rows.files, transactions)

    def commit_nothing(self, *transactions: Transaction) -> None:
        """Commit an empty write; ConflictError if there is a newer commit with the id of one of the transactions."""
        with self.committing(transactions):
            self.delta.create_write_transaction(
                [], "append", self.arrow, list(self.partitioned_by), commit_properties=commit_of(transactions)
            )

    def require_writable(self) -> None:
        """Raise TablesError if the table has a feature that delta-rs cannot write."""
        refuse_features(self.delta)

    @contextmanager
    def committing(self, transactions: Sequence[Transaction]) -> Iterator[None]:
        """Commit to `delta` within the context; a commit whose answer was lost succeeds."""
        if self._seen is None:
            with committing(self.delta, transactions):
                yield
            self._follow()
            return
        with self._seen.turn(self.name), self.reading():
            self._seen.require_present(self.name, self._version)
            if self.delta.version() != self._version:
                raise ConflictError(f"the table {self.where} was written to meanwhile")
            with committing(self.delta, transactions):
                yield
            before = self._version
            self._seen.note(self.name, self.delta, before + 1)
            self._follow()
            self._seen.committed(self.name, self.delta, before, transactions)

    def _follow(self) -> None:
        """Move to the version that was just committed; delta-rs does so itself only after some writes."""
        if self.delta.version() == self._version:
            with suppress(TablesError), self.reading():  # the commit succeeded
                self.delta.update_incremental()
        self._version = self.delta.version()

    def _write(self, rows: Iterable[pa.Table], transactions: Sequence[Transaction], **how: Any) -> None:
        """Write the rows; TablesError if they violate a user's CHECK, or if an unsupported feature was turned on."""
        schema = self.arrow
        parts = (with_all_columns(part, schema) for part in rows)
        data: pa.Table | pa.RecordBatchReader
        if isinstance(rows, Sequence):  # rows in memory: delta-rs's threads need not wait for Python's lock
            data = pa.concat_tables([schema.empty_table(), *parts])
        else:
            data = pa.RecordBatchReader.from_batches(schema, (batch for part in parts for batch in part.to_batches()))
        with self.committing(transactions):
            write_deltalake(self.delta, data, commit_properties=commit_of(transactions), **how)


def _field(column: ColumnSchema) -> Field:
    return Field(column.name, PrimitiveType(_DELTA_TYPES[column.type]), metadata={"comment": column.comment})


def _sql_type(field: Field) -> str:
    if not isinstance(field.type, PrimitiveType):
        return str(field.type)
    return _SQL_TYPES.get(field.type.type, field.type.type)


def _quoted(column: str) -> str:
    """Return any column name quoted for DataFusion's SQL."""
    return '"' + column.replace('"', '""') + '"'
