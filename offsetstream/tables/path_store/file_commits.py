"""Files that become a table's by one commit of delta-rs, whoever wrote them.

All commits to a table at a path are delta-rs's. On S3 it puts a version only where there is none; Delta's own store
for S3 does not, and of two writers one would overwrite what the other was told is there.
A file that is never committed, as of a task that failed, is none of the table's; VACUUM removes it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction

from offsetstream.errors import TablesError
from offsetstream.tables.arrow_rows import with_constants
from offsetstream.tables.files import NewFile
from offsetstream.tables.path_store.commits import commit_of, committing
from offsetstream.tables.path_store.features import checks_rows, has_deletion_vectors, refuse_features
from offsetstream.tables.path_store.folder import file_system
from offsetstream.tables.schema import HISTORY_DAY
from offsetstream.tables.store import EVERY_ROW, Transaction

if TYPE_CHECKING:
    from offsetstream.tables.path_store.snapshot import PathSnapshot


def append_written(table: PathSnapshot, files: Sequence[NewFile], transactions: Sequence[Transaction]) -> None:
    """Give the files to the table in one commit; TablesError if they are not there."""
    refuse_features(table.delta)
    _require(table.where, files)
    if checks_rows(table.delta):
        table.append(_rows_of(table.where, files), *transactions)
        return
    _commit(table, _additions(files, changes_rows=True), transactions)


def put_in_place(table: PathSnapshot, files: Sequence[NewFile], transactions: Sequence[Transaction]) -> None:
    """Make the files' rows all that the table has; ConflictError if anybody has written to it since it was opened."""
    refuse_features(table.delta)
    _require(table.where, files)
    # The removal of a file says nothing of its deletion vector, without which it is of no file.
    if checks_rows(table.delta) or has_deletion_vectors(table.delta):
        table.replace(EVERY_ROW, _rows_of(table.where, files), *transactions)
        return
    actions = [*_additions(files, changes_rows=True), *_removals(table, changes_rows=True)]
    _commit(table, actions, transactions, alone=True)


def exchange(table: PathSnapshot, gone: Collection[str], files: Sequence[NewFile]) -> None:
    """Exchange files of the table for new ones with the same rows; ConflictError if somebody has written to it since.

    Whoever reads the table as a stream sees none of them again.
    """
    actions = [*_additions(files, changes_rows=False), *_removals(table, gone, changes_rows=False)]
    _commit(table, actions, (), alone=True)


def _commit(
    table: PathSnapshot,
    actions: list[AddAction | RemoveAction],
    transactions: Sequence[Transaction],
    *,
    alone: bool = False,
) -> None:
    # Of actions that remove files delta-rs (1.6) does not see that another commit removed them before: alone.
    how = commit_of(transactions, alone=alone)
    schema, partitions = table.delta.schema(), list(table.partitioned_by)
    with committing(table.delta, transactions):
        table.delta.create_write_transaction(actions, "append", schema, partitions, commit_properties=how)


def _additions(files: Sequence[NewFile], *, changes_rows: bool) -> list[AddAction | RemoveAction]:
    now = int(time.time() * 1000)
    return [
        AddAction(new.path, new.size, {HISTORY_DAY: new.day} if new.day else {}, now, changes_rows, new.statistics)
        for new in files
    ]


def _removals(
    table: PathSnapshot, only: Collection[str] | None = None, *, changes_rows: bool
) -> Iterator[RemoveAction]:
    """Yield the removal of the table's files, of all or of those named as its log names them."""
    now = int(time.time() * 1000)
    for file in pa.table(table.delta.get_add_actions(flatten=True)).to_pylist():
        if only is None or file["path"] in only:
            day = file.get(f"partition.{HISTORY_DAY}")
            values: dict[str, str | None] = {} if day is None else {HISTORY_DAY: str(day)}
            yield RemoveAction(unquote(file["path"]), changes_rows, now, file["size_bytes"], values)


def _rows_of(table: str, files: Sequence[NewFile]) -> Iterator[pa.Table]:
    store = file_system(table)
    with ThreadPoolExecutor(1) as reader:  # a write that takes the rows cannot read from its own threads
        for new in files:
            file = reader.submit(lambda path: pq.ParquetFile(store.open_input_file(path)), new.path).result()
            day = {HISTORY_DAY: date.fromisoformat(new.day)} if new.day else {}
            for part in range(file.num_row_groups):
                yield with_constants(reader.submit(file.read_row_group, part).result(), day)


def _require(table: str, files: Sequence[NewFile]) -> None:
    found = file_system(table).get_file_info([new.path for new in files])
    if any(info.size != new.size for info, new in zip(found, files, strict=True)):
        raise TablesError(
            f"Spark's tasks wrote files of {table} that are not there for the driver: name a place by --tables that "
            "all of them reach"
        )
