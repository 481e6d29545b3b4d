"""The files in a table's folder: compaction, and deletion of files that no version uses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from operator import attrgetter
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from offsetstream.errors import ConflictError, TablesError
from offsetstream.in_parts import in_parts
from offsetstream.tables.files import (
    CurrentFiles,
    NewFile,
    SmallFiles,
    StoredFiles,
    TableFiles,
    compaction_order,
    small_files_of,
)
from offsetstream.tables.path_store.data_file import PART_BYTES, DataFile, file_system
from offsetstream.tables.path_store.errors import translated_errors
from offsetstream.tables.path_store.features import has_deletion_vectors, refuse_features
from offsetstream.tables.path_store.snapshot import PathSnapshot, exchange
from offsetstream.tables.schema import HISTORY_DAY
from offsetstream.tables.transaction import again_on_conflict

_VERSION, _VERSION_CHECKSUM = re.compile(r"\d{20}\.json"), re.compile(r"\d{20}\.crc")
_CHECKSUM = re.compile(r"\.(.+)\.crc")  # written by Hadoop's local file system


class PathFiles(TableFiles):
    """The files in a table's folder."""

    def __init__(self, snapshot: PathSnapshot) -> None:
        self._snapshot = snapshot
        self._table = snapshot.delta
        self._where = snapshot.where

    def small_files(self) -> list[SmallFiles]:
        """Return the sets of at least two files that are smaller than half of their target, closed days last.

        There are none in tables of groups: merges keep the number of their files (`group_files.py`).
        """
        if self._snapshot.has_group_files:
            return []
        today = datetime.now(UTC).date()
        found = Counter[date | None]()
        for day, size in self._sizes():
            found[day] += size < small_files_of(day, 0, today).target_bytes // 2
        return compaction_order((small_files_of(day, files, today) for day, files in found.items()), today)

    def compact(self, crowd: SmallFiles) -> None:
        """Compact the files on the driver."""
        compact(self._snapshot, crowd)

    def clear(self) -> None:
        """Run a full VACUUM, and delete old log files and leftover checksums."""
        with translated_errors(self._where, "clean up"):
            self._table.vacuum(dry_run=False, full=True)
            self._table.cleanup_metadata()
            _delete_checksums(self._where)

    def removable(self) -> set[str]:
        """Return the names of the data files that a VACUUM would delete."""
        with translated_errors(self._where):
            return {path.rsplit("/", 1)[-1] for path in self._table.vacuum(dry_run=True, full=True)}

    def present(self) -> CurrentFiles:
        """Return number and bytes of the data files that the log names."""
        sizes = [size for _, size in self._sizes()]
        return CurrentFiles(len(sizes), sum(sizes))

    def stored(self, without: Collection[str] = ()) -> StoredFiles:
        """Return number and bytes of all files in the folder, except data files with the names in `without`."""
        with translated_errors(self._where):
            files = [file for file in _listed(file_system(self._where)) if file.base_name not in without]
        log_files = sum("_delta_log" in file.path for file in files)
        return StoredFiles(len(files) - log_files, log_files, sum(file.size for file in files))

    def lost(self) -> list[str]:
        """Return the data files that the log names but that are not in the folder."""
        with translated_errors(self._where):
            found = {file.path for file in _listed(file_system(self._where))}
        return sorted({unquote(path) for path in self._added()["path"].to_pylist()} - found)

    def _sizes(self) -> Iterator[tuple[date | None, int]]:
        added = self._added()
        is_by_day = bool(self._table.metadata().partition_columns)
        days = added[f"partition.{HISTORY_DAY}"] if is_by_day else pa.nulls(added.num_rows)
        return zip(days.to_pylist(), added["size_bytes"].to_pylist(), strict=True)

    def _added(self) -> pa.Table:
        with translated_errors(self._where):
            return pa.table(self._table.get_add_actions(flatten=True))


def _delete_checksums(table: str) -> None:
    """Delete checksums of deleted files: Spark leaves them on a local disk, and in the log of any store."""
    store = file_system(table)
    files = {file.path: file for file in _listed(store)}
    versions = [file.base_name for file in files.values() if _VERSION.fullmatch(file.base_name)]
    for path, file in files.items():
        hidden = _CHECKSUM.fullmatch(file.base_name)
        is_leftover = hidden is not None and path[: -len(file.base_name)] + hidden[1] not in files
        is_old = bool(_VERSION_CHECKSUM.fullmatch(file.base_name)) and file.base_name < min(versions)
        if is_leftover or is_old:
            with suppress(FileNotFoundError):  # the job and `maintain` may do this at the same time
                store.delete_file(path)


def _listed(store: pafs.PyFileSystem) -> list[pafs.FileInfo]:
    return [file for file in store.get_file_info(pafs.FileSelector("", recursive=True)) if file.is_file]


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
    for rows in (part for file in files for part in table.reader.rows(file.path, constants=constants)):
        waiting.append(rows)
        size += rows.nbytes
        if size >= PART_BYTES:
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
