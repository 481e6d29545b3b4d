"""Compaction on the driver, without Spark: some milliseconds per file. It never makes another commit fail."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from offsetstream.errors import ConflictError, TablesError
from offsetstream.in_parts import in_parts
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.files import NewFile, SmallFiles
from offsetstream.tables.path_store.data_file import DataFile, rows_of_file
from offsetstream.tables.path_store.errors import translated_errors
from offsetstream.tables.path_store.features import has_deletion_vectors, refuse_features
from offsetstream.tables.path_store.file_commits import exchange
from offsetstream.tables.schema import HISTORY_DAY

if TYPE_CHECKING:
    from offsetstream.tables.path_store.snapshot import PathSnapshot

_GROUP_BYTES = 32 << 20  # of a row group, which must fit in memory


class _Small(NamedTuple):
    path: str
    size: int


def compact(table: PathSnapshot, crowd: SmallFiles) -> None:
    """Merge the small files into files of the target size; TablesError if a feature of the table forbids it."""
    refuse_features(table.delta)
    if has_deletion_vectors(table.delta):
        raise TablesError(f"cannot compact the files of {table.where}: they may have deletion vectors")
    for files in _bins(_small_files(table, crowd), crowd.target_bytes):
        with translated_errors(table.where, "compact"):
            new = _write(table, files, crowd.day)
        if not _exchange(table, {file.path for file in files}, [new] if new else []):
            raise ConflictError(f"files of {table.where} were removed while they were compacted")


def _small_files(table: PathSnapshot, crowd: SmallFiles) -> Iterator[_Small]:
    for file in pa.table(table.delta.get_add_actions(flatten=True)).to_pylist():
        is_of_day = file.get(f"partition.{HISTORY_DAY}") == crowd.day
        if is_of_day and file["size_bytes"] < crowd.target_bytes // 2:
            yield _Small(file["path"], file["size_bytes"])


def _bins(files: Iterator[_Small], target: int) -> Iterator[list[_Small]]:
    """Return groups of files that together have about the target size; a single file is not a group."""
    return (group for group in in_parts(files, target, attrgetter("size")) if len(group) > 1)


def _write(table: PathSnapshot, files: list[_Small], day: date | None) -> NewFile | None:
    new, waiting, size = DataFile(table.where, day), list[pa.Table](), 0
    constants = {} if day is None else {HISTORY_DAY: day}
    for rows in (part for file in files for part in rows_of_file(table, file.path, constants=constants)):
        waiting.append(rows)
        size += rows.nbytes
        if size >= _GROUP_BYTES:
            new.write(pa.concat_tables(waiting))
            waiting, size = [], 0
    if waiting:
        new.write(pa.concat_tables(waiting))
    return new.close()


@again_on_conflict
def _exchange(table: PathSnapshot, gone: set[str], new: list[NewFile]) -> bool:
    """Replace the files, even after other commits; return False if the table no longer has all of them."""
    table.refresh()
    if not gone <= set(pa.table(table.delta.get_add_actions())["path"].to_pylist()):
        return False
    exchange(table, gone, new, changes_rows=False)
    return True
