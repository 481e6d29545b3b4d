"""Add written files to a table in one commit of delta-rs.

delta-rs makes all commits to the tables of a path store. On S3 it writes a version only if that version does not exist
yet. Delta's own S3 store does not check this, so one of two writers could overwrite the other's commit.
A file that is never committed, for example of a failed task, does not belong to the table; VACUUM deletes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction

from offsetstream.errors import TablesError
from offsetstream.tables.arrow_rows import with_constant_columns
from offsetstream.tables.files import NewFile
from offsetstream.tables.matching import regrouped, with_all_columns, with_users_columns
from offsetstream.tables.path_store.commits import commit_of
from offsetstream.tables.path_store.features import checks_rows, refuse_features
from offsetstream.tables.path_store.folder import file_system
from offsetstream.tables.path_store.group_files import FilesOfGroups
from offsetstream.tables.schema import HISTORY_DAY, load_schema
from offsetstream.tables.store import Transaction

if TYPE_CHECKING:
    from offsetstream.tables.path_store.snapshot import PathSnapshot


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
    if "://" in table and not table.startswith("file:"):  # one place for all: a look costs two requests a file
        return
    found = file_system(table).get_file_info([new.path for new in files])
    if any(info.size != new.size for info, new in zip(found, files, strict=True)):
        raise TablesError(
            f"the driver cannot find files that Spark's tasks wrote to {table}: with --tables, name a place that the "
            "driver and all executors reach"
        )
