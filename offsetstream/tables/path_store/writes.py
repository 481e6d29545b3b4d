"""Commits to a table by delta-rs: merges, and files that were written before.

delta-rs makes all commits to the tables of a path store. On S3 it writes a version only if that version does not exist
yet. Delta's own S3 store does not check this, so one of two writers could overwrite the other's commit.
A file that is never committed, for example of a failed task, does not belong to the table; VACUUM deletes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake import Transaction as AppTransaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from offsetstream.coordinator.reduction import GROUP
from offsetstream.errors import DoubledRowsError, TablesError
from offsetstream.tables.files import NewFile
from offsetstream.tables.matching import (
    DELETED,
    Changes,
    Merge,
    RowKeys,
    find_changes,
    regrouped,
    rows_without_keys,
    with_all_columns,
    with_users_columns,
)
from offsetstream.tables.path_store.data_file import file_system
from offsetstream.tables.path_store.errors import is_remote, tables_error, translated_errors
from offsetstream.tables.path_store.features import checks_rows, explain_write_error, refuse_features
from offsetstream.tables.path_store.group_files import FilesOfGroups, StoredFile, hashes_of
from offsetstream.tables.rows import with_constant_columns
from offsetstream.tables.schema import HISTORY_DAY, load_schema
from offsetstream.tables.sql import in_partitions
from offsetstream.tables.store import Transaction

if TYPE_CHECKING:
    from offsetstream.tables.path_store.snapshot import PathSnapshot


_SMALL_BYTES = 8 << 20  # of files; their rows need several times as much memory


def merge_on_path(table: PathSnapshot, source: pa.Table, merge: Merge, transactions: Sequence[Transaction]) -> None:
    """Merge `source` (the table's columns and `_deleted`), as `Snapshot.merge` describes."""
    schema = merge.schema
    is_deleted, rows = source[DELETED].combine_chunks(), source.select(schema.column_names).cast(schema.arrow)
    if merge.replace_where is not None:
        rows = with_users_columns(table, merge.replace_where, rows.filter(pc.invert(is_deleted)), schema.key)
        if table.has_group_files:
            replace_by_groups(table, merge.replace_where, rows, transactions)
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
    stored = (part for _, part in files.rows(table, files.of(hashes_of(rows))))
    changes = _changes(stored, rows, is_deleted, merge)
    if not changes.removed.num_rows and not changes.added.num_rows:
        return  # a merge that changes nothing must not make a version
    changed = pa.concat_tables([each.select(GROUP) for each in (changes.removed, changes.added)])
    gone = files.changed(hashes_of(changed))
    removed = RowKeys(changes.removed, merge.schema.key)

    def kept() -> Iterator[tuple[StoredFile | None, pa.Table]]:
        for file, part in files.rows(table, gone):
            yield file, rows_without_keys(part, removed)
        yield None, with_all_columns(changes.added, table.arrow)

    new, before = files.rewritten(table.where, kept()), table.version
    exchange(table, [file.path for file in gone], new.files, transactions)
    files.exchanged(table, gone, new, before)


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


_ROWS = 200_000  # of those that stay in a table: as many are read at once
_Change = Callable[[pa.Table], pa.Table]


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


def replace_by_groups(table: PathSnapshot, where: str, rows: pa.Table, transactions: Sequence[Transaction]) -> None:
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
    properties = commit_of(transactions, alone=alone)
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


def commit_of(transactions: Sequence[Transaction], *, alone: bool = False) -> CommitProperties:
    """Return the properties with which delta-rs writes the transactions in a commit.

    `alone`: the commit fails after any other commit since the table was read, even if delta-rs sees no conflict.
    """
    app_transactions = [AppTransaction(*each) for each in transactions]
    return CommitProperties(app_transactions=app_transactions, max_commit_retries=0 if alone else None)


@contextmanager
def committing(table: DeltaTable, transactions: Sequence[Transaction]) -> Iterator[None]:
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
