"""A table opened by delta-rs: DataFusion reads it; writes are appends, overwrites of some rows, or new files for old.

Of delta-rs's ways (1.6) to change rows, two are safe: an overwrite with a condition, which fails if another commit
removed the files that it read, and a transaction of files that fails beside any other commit. With others, an OPTIMIZE
in between would double every row. And all readers can filter the files of both. MERGE, UPDATE and DELETE store text
columns as `string_view` in the files' Arrow schema, which a pyarrow dataset cannot filter.

delta-rs makes all commits to the tables of a path store. On S3 it writes a version only if that version does not exist
yet. Delta's own S3 store does not check this, so one of two writers could overwrite the other's commit. A file that is
never committed, for example of a failed task, does not belong to the table; VACUUM deletes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from itertools import chain
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, QueryBuilder, Schema, write_deltalake
from deltalake import Transaction as AppTransaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction, RemoveAction

from offsetstream.coordinator.reduction import GROUP
from offsetstream.errors import ConflictError, DoubledRowsError, TablesError, one_line
from offsetstream.settings.places import is_remote
from offsetstream.tables.files import NewFile
from offsetstream.tables.matching import (
    Changes,
    RowKeys,
    find_changes,
    regrouped,
    rows_without_keys,
    with_all_columns,
    with_users_columns,
)
from offsetstream.tables.path_store.data_file import FileReader, file_system
from offsetstream.tables.path_store.errors import REACH, tables_error, translated_errors
from offsetstream.tables.path_store.features import (
    checks_rows,
    explain_write_error,
    has_deletion_vectors,
    refuse_features,
)
from offsetstream.tables.path_store.group_files import At, FilesOfGroups, GroupFiles, StoredFile, hashes_of
from offsetstream.tables.path_store.seen import SeenTables
from offsetstream.tables.rows import with_constant_columns
from offsetstream.tables.schema import DELETED, HISTORY_DAY, ColumnSchema, TableSchema, is_by_group, load_schema
from offsetstream.tables.sql import in_partitions
from offsetstream.tables.store import EVERY_ROW, Merge, Snapshot, Transaction
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
_SMALL_BYTES = 8 << 20  # of files; their rows need several times as much memory
_ROWS = 200_000  # of those that stay in a table: as many are read at once
_Change = Callable[[pa.Table], pa.Table]


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
        raise TablesError(f"cannot create the table {path}: {one_line(error)}: {remedy}") from error


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
        return (part for _, part in files.rows(self.reader, files.of(hashes_of(groups)), columns))

    @property
    def has_group_files(self) -> bool:
        """Whether merges rewrite the files of single groups: files have all of the rows, and nobody checks these."""
        has_all_in_files = not self.partitioned_by and not has_deletion_vectors(self.delta)
        return is_by_group(self.name) and has_all_in_files and not checks_rows(self.delta)

    @property
    def group_files(self) -> GroupFiles:
        """The files of this version by group."""
        files = GroupFiles() if self._seen is None else self._seen.group_files(self.name)
        files.look(self.at, self.delta, self.reader)
        return files

    @property
    def at(self) -> At:
        """What `group_files` knows this version by."""
        return self.table_id, self.version

    @property
    def reader(self) -> FileReader:
        """Reads single files of the table."""
        return FileReader(self.where, self.arrow, self.reading)

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
        _merge(self, source, merge, transactions)

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
                [], "append", self.arrow, list(self.partitioned_by), commit_properties=_commit_of(transactions)
            )

    def require_writable(self) -> None:
        """Raise TablesError if the table has a feature that delta-rs cannot write."""
        refuse_features(self.delta)

    @contextmanager
    def committing(self, transactions: Sequence[Transaction]) -> Iterator[None]:
        """Commit to `delta` within the context; a commit whose answer was lost succeeds."""
        if self._seen is None:
            with _committing(self.delta, transactions):
                yield
            self._follow()
            return
        with self._seen.turn(self.name), self.reading():
            self._seen.require_present(self.name, self._version)
            if self.delta.version() != self._version:
                raise ConflictError(f"the table {self.where} was written to meanwhile")
            with _committing(self.delta, transactions):
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
            write_deltalake(self.delta, data, commit_properties=_commit_of(transactions), **how)


def _merge(table: PathSnapshot, source: pa.Table, merge: Merge, transactions: Sequence[Transaction]) -> None:
    """Merge `source` (the table's columns and `_deleted`), as `Snapshot.merge` describes."""
    schema = merge.schema
    is_deleted, rows = source[DELETED].combine_chunks(), source.select(schema.column_names).cast(schema.arrow)
    if merge.replace_where is not None:
        rows = with_users_columns(table, merge.replace_where, rows.filter(pc.invert(is_deleted)), schema.key)
        if table.has_group_files:
            _replace_by_groups(table, merge.replace_where, rows, transactions)
        else:
            table.replace(merge.replace_where, [rows], *transactions)
    elif table.has_group_files:
        _by_groups(table, rows, is_deleted, merge, transactions)
    else:
        _by_partitions(table, rows, is_deleted, merge, transactions)


def _by_groups(
    table: PathSnapshot, rows: pa.Table, is_deleted: pa.Array, merge: Merge, transactions: Sequence[Transaction]
) -> None:
    """Rewrite the files that have a group with a change."""
    refuse_features(table.delta)
    files = table.group_files
    stored = (part for _, part in files.rows(table.reader, files.of(hashes_of(rows))))
    changes = _changes(stored, rows, is_deleted, merge)
    if not changes.removed.num_rows and not changes.added.num_rows:
        return  # a merge that changes nothing must not make a version
    changed = pa.concat_tables([each.select(GROUP) for each in (changes.removed, changes.added)])
    gone = files.changed(hashes_of(changed))
    removed = RowKeys(changes.removed, merge.schema.key)

    def kept() -> Iterator[tuple[StoredFile | None, pa.Table]]:
        for file, part in files.rows(table.reader, gone):
            yield file, rows_without_keys(part, removed)
        yield None, with_all_columns(changes.added, table.arrow)

    new, before = files.rewritten(table.where, kept()), table.version
    exchange(table, [file.path for file in gone], new.files, transactions)
    files.exchanged(table.at, gone, new, before)


def _by_partitions(
    table: PathSnapshot, rows: pa.Table, is_deleted: pa.Array, merge: Merge, transactions: Sequence[Transaction]
) -> None:
    """Let delta-rs rewrite the rows of the same offsets partitions."""
    same_partitions = in_partitions(sorted(pc.unique(rows["offsets_partition"]).to_pylist()))
    stored = _rows_reader(table, same_partitions)
    changes = _changes(stored(), rows, is_deleted, merge)
    if not changes.removed.num_rows:
        if changes.added.num_rows:  # a merge that changes nothing must not make a version
            table.append([changes.added], *transactions)
        return
    removed = RowKeys(changes.removed, merge.schema.key)
    kept = (rows_without_keys(part, removed) for part in regrouped(stored(), changes.removed.num_rows))
    table.replace(same_partitions, chain(kept, [changes.added]), *transactions)


def _changes(stored: Iterable[pa.Table], rows: pa.Table, is_deleted: pa.Array, merge: Merge) -> Changes:
    changes = find_changes(stored, rows, is_deleted, merge.schema.key, newer_only=merge.newer_only)
    if changes.doubled:
        raise DoubledRowsError(merge.schema.name, changes.doubled)
    return changes


def _rows_reader(table: PathSnapshot, where: str) -> Callable[[], Iterable[pa.Table]]:
    """Return a function that returns these rows at each call: from memory for a small table, else by a new read."""
    if sum(pa.table(table.delta.get_add_actions())["size_bytes"].to_pylist()) > _SMALL_BYTES:
        return lambda: table.rows(where)
    parts = list(table.rows(where))
    cached = [pa.concat_tables(parts)] if parts else parts
    return lambda: cached


def append_written(table: PathSnapshot, files: Sequence[NewFile], transactions: Sequence[Transaction]) -> None:
    """Add the files to the table in one commit; TablesError if a file is missing."""
    refuse_features(table.delta)
    _require(table.where, files)
    if checks_rows(table.delta):
        table.append(_rows_of(table.where, files), *transactions)
        return
    _commit(table, _additions(files, changes_rows=True), transactions)


def replace_by_written(
    table: PathSnapshot, where: str, files: Sequence[NewFile], transactions: Sequence[Transaction]
) -> None:
    """Replace all rows of a state table that match the condition by the files' rows.

    ConflictError after any other write since the table was opened.
    """
    refuse_features(table.delta)
    _require(table.where, files)
    schema = load_schema(table.name)
    has_users_columns = not set(schema.column_names).issuperset(table.arrow.names)
    # Removals made here cannot name a file's deletion vector, and without it they match no file.
    if not table.has_group_files or has_users_columns:
        rows = _rows_of(table.where, files, lambda part: with_users_columns(table, where, part, schema.key))
        table.replace(where, rows, *transactions)
        return
    _replace(table, where, FilesOfGroups(table.where, table.delta.count()), transactions, files)


def _replace_by_groups(table: PathSnapshot, where: str, rows: pa.Table, transactions: Sequence[Transaction]) -> None:
    """Replace all rows of a state table that match the condition by others; ConflictError after any other write."""
    refuse_features(table.delta)
    new = FilesOfGroups(table.where, table.delta.count() + rows.num_rows)
    new.write_cold(with_all_columns(rows, table.arrow))
    _replace(table, where, new, transactions)


def _replace(
    table: PathSnapshot,
    where: str,
    new: FilesOfGroups,
    transactions: Sequence[Transaction],
    others: Sequence[NewFile] = (),
) -> None:
    """Replace all files: by `new` ones, to which the rows that stay are added, and `others`."""
    for part in regrouped(table.rows(f"NOT coalesce({where}, false)"), _ROWS):
        new.write_cold(part)
    new.close()
    exchange(table, None, [*new.files, *others], transactions)


def exchange(
    table: PathSnapshot,
    gone: Collection[str] | None,
    files: Sequence[NewFile],
    transactions: Sequence[Transaction] = (),
    *,
    changes_rows: bool = True,
) -> None:
    """Replace files of the table, or all if `gone` is None, by new ones; ConflictError after any other write.

    Unless it `changes_rows`, streaming readers of the table do not see the rows again.
    """
    removed = _removals(table, gone, changes_rows=changes_rows)
    _commit(table, [*_additions(files, changes_rows=changes_rows), *removed], transactions, alone=True)


def _commit(
    table: PathSnapshot,
    actions: list[AddAction | RemoveAction],
    transactions: Sequence[Transaction],
    *,
    alone: bool = False,
) -> None:
    # delta-rs (1.6) does not notice that another commit has removed the same files: removals need `alone`.
    properties = _commit_of(transactions, alone=alone)
    schema, partitions = table.delta.schema(), list(table.partitioned_by)
    with table.committing(transactions):
        table.delta.create_write_transaction(actions, "append", schema, partitions, commit_properties=properties)


def _additions(files: Sequence[NewFile], *, changes_rows: bool) -> list[AddAction | RemoveAction]:
    now = int(time.time() * 1000)
    return [
        AddAction(new.path, new.size, {HISTORY_DAY: new.day} if new.day else {}, now, changes_rows, new.statistics)
        for new in files
    ]


def _removals(table: PathSnapshot, only: Collection[str] | None, *, changes_rows: bool) -> Iterator[RemoveAction]:
    """Yield removals of the table's files: of all, or of those in `only` (paths as in the log)."""
    now = int(time.time() * 1000)
    for file in pa.table(table.delta.get_add_actions(flatten=True)).to_pylist():
        if only is None or file["path"] in only:
            day = file.get(f"partition.{HISTORY_DAY}")
            values: dict[str, str | None] = {} if day is None else {HISTORY_DAY: str(day)}
            yield RemoveAction(unquote(file["path"]), changes_rows, now, file["size_bytes"], values)


def _rows_of(table: str, files: Sequence[NewFile], change: _Change = lambda rows: rows) -> Iterator[pa.Table]:
    store = file_system(table)
    with ThreadPoolExecutor(1) as reader:  # the write consumes the rows in threads that cannot read files
        for new in files:
            file = reader.submit(lambda path: pq.ParquetFile(store.open_input_file(path)), new.path).result()
            day = {HISTORY_DAY: date.fromisoformat(new.day)} if new.day else {}
            for part in range(file.num_row_groups):
                rows = reader.submit(lambda file, part: change(file.read_row_group(part)), file, part).result()
                yield with_constant_columns(rows, day)


def _require(table: str, files: Sequence[NewFile]) -> None:
    if is_remote(table.removeprefix("file://")):  # one place for all: a look costs two requests a file
        return
    found = file_system(table).get_file_info([new.path for new in files])
    if any(info.size != new.size for info, new in zip(found, files, strict=True)):
        raise TablesError(
            f"the driver cannot find files that Spark's tasks wrote to {table}: with --tables, name a place that the "
            "driver and all executors reach"
        )


def _commit_of(transactions: Sequence[Transaction], *, alone: bool = False) -> CommitProperties:
    """Return the properties with which delta-rs writes the transactions in a commit.

    `alone`: the commit fails after any other commit since the table was read, even if delta-rs sees no conflict.
    """
    app_transactions = [AppTransaction(*each) for each in transactions]
    return CommitProperties(app_transactions=app_transactions, max_commit_retries=0 if alone else None)


@contextmanager
def _committing(table: DeltaTable, transactions: Sequence[Transaction]) -> Iterator[None]:
    """Translate delta-rs's errors of a commit to TablesError; ignore them if the commit succeeded after all.

    If only the store's answer was lost, delta-rs repeats the commit and conflicts with its own first attempt. The
    transactions contain the checkpoint, so no other job has the same ones.
    """
    try:
        yield
    except DeltaError as error:
        if isinstance(error, CommitFailedError) and _is_committed(table.table_uri, transactions):
            return
        raise explain_write_error(error, table) or tables_error(error, table.table_uri, "write to") from error


def _is_committed(where: str, transactions: Sequence[Transaction]) -> bool:
    with translated_errors(where):
        current = DeltaTable(where)
    return bool(transactions) and all(current.transaction_version(app) == version for app, version in transactions)


def _field(column: ColumnSchema) -> Field:
    return Field(column.name, PrimitiveType(_DELTA_TYPES[column.type]), metadata={"comment": column.comment})


def _sql_type(field: Field) -> str:
    if not isinstance(field.type, PrimitiveType):
        return str(field.type)
    return _SQL_TYPES.get(field.type.type, field.type.type)


def _quoted(column: str) -> str:
    """Return any column name quoted for DataFusion's SQL."""
    return '"' + column.replace('"', '""') + '"'
