"""The files in a table's folder: compaction, and deletion of files that no version uses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from offsetstream.tables.files import (
    CurrentFiles,
    SmallFiles,
    StoredFiles,
    TableFiles,
    compaction_order,
    small_files_of,
)
from offsetstream.tables.path_store.compaction import compact
from offsetstream.tables.path_store.errors import translated_errors
from offsetstream.tables.path_store.folder import file_system
from offsetstream.tables.schema import HISTORY_DAY

if TYPE_CHECKING:
    from offsetstream.tables.path_store.snapshot import PathSnapshot

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
