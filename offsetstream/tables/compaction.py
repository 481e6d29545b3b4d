"""What keeps a table small: few files instead of many, no files and no log that nobody may read any more.

Files are compacted by Spark's OPTIMIZE: that of delta-rs (1.6) does not see another OPTIMIZE that ended meanwhile, and
then both results stay in the table: each row twice (seen).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from urllib.parse import unquote

import delta.tables
import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from offsetstream.tables.files import file_system
from offsetstream.tables.schema import HISTORY_DAY, TableSchema

MIB = 1024 * 1024
# A day that is written to is compacted in steps, so that a row is written a few times, not with each step again.
_VERSION, _VERSION_CHECKSUM = re.compile(r"\d{20}\.json"), re.compile(r"\d{20}\.crc")
_CHECKSUM = re.compile(r"\.(.+)\.crc")  # as Hadoop's local file system names it
OPEN_FILE_BYTES, CLOSED_FILE_BYTES = 16 * MIB, 128 * MIB


@dataclass(frozen=True)
class Crowd:
    """Files that one OPTIMIZE would put together: of a day of a history, or of a whole state table."""

    day: date | None
    files: int
    target_bytes: int

    @property
    def is_closed(self) -> bool:
        """Whether it is a day of which nobody writes any more."""
        return self.target_bytes == CLOSED_FILE_BYTES


def crowds(table: DeltaTable, schema: TableSchema) -> list[Crowd]:
    """Return where the table has at least two files that are less than half of what they might be, closed days last."""
    today = datetime.now(UTC).date()
    found: dict[date | None, int] = {}
    for day, size in _files(table, schema):
        found[day] = found.get(day, 0) + (size < _target(day, today) // 2)
    all_of_them = (Crowd(day, files, _target(day, today)) for day, files in found.items() if files > 1)
    return sorted(all_of_them, key=lambda crowd: (crowd.is_closed, crowd.day or today))


def compact(session: SparkSession, table: str, crowd: Crowd) -> None:
    """Put the files together; ``session`` is one of the caller's own, as its settings are changed.

    Raises DeltaConcurrentModificationException where another write took the files away meanwhile.
    """
    for name in ("minFileSize", "maxFileSize"):
        session.conf.set(f"spark.databricks.delta.optimize.{name}", str(crowd.target_bytes))
    optimize = delta.tables.DeltaTable.forPath(session, table).optimize()
    if crowd.day is not None:
        optimize = optimize.where(f"{HISTORY_DAY} = DATE '{crowd.day}'")
    optimize.executeCompaction()


def clear(table: DeltaTable) -> None:
    """Delete the files that no version within the table's retention has, and the log before it."""
    table.vacuum(dry_run=False, full=True)
    table.cleanup_metadata()
    _delete_checksums(table)


def removable(table: DeltaTable) -> set[str]:
    """Return the names of the files that :func:`clear` would delete of the data."""
    return {path.rsplit("/", 1)[-1] for path in table.vacuum(dry_run=True, full=True)}


@dataclass(frozen=True)
class Stored:
    """What lies in a table's folder: data files, those of its log, and all their bytes; dead files too."""

    files: int
    log_files: int
    bytes: int


def stored(table: DeltaTable, without: Collection[str] = ()) -> Stored:
    """Return what lies in the table's folder, but for data files of the given names."""
    files = [file for file in _listed(file_system(table.table_uri)) if file.base_name not in without]
    log_files = sum("_delta_log" in file.path for file in files)
    return Stored(len(files) - log_files, log_files, sum(file.size for file in files))


def lost_files(table: DeltaTable) -> list[str]:
    """Return the data files that the table has, and its folder has not."""
    found = {file.path for file in _listed(file_system(table.table_uri))}
    return sorted({unquote(path) for path in _added(table)["path"].to_pylist()} - found)


def _delete_checksums(table: DeltaTable) -> None:
    """Delete the checksums of files that are gone: Spark leaves them on a local disk, and in the log anywhere."""
    store = file_system(table.table_uri)
    files = {file.path: file for file in _listed(store)}
    versions = [file.base_name for file in files.values() if _VERSION.fullmatch(file.base_name)]
    for path, file in files.items():
        hidden = _CHECKSUM.fullmatch(file.base_name)
        is_alone = hidden is not None and path[: -len(file.base_name)] + hidden[1] not in files
        is_old = bool(_VERSION_CHECKSUM.fullmatch(file.base_name)) and file.base_name < min(versions)
        if is_alone or is_old:
            with suppress(FileNotFoundError):  # the job and `maintain` may both be at it
                store.delete_file(path)


def _listed(store: pafs.PyFileSystem) -> list[pafs.FileInfo]:
    return [file for file in store.get_file_info(pafs.FileSelector("", recursive=True)) if file.is_file]


def _target(day: date | None, today: date) -> int:
    return CLOSED_FILE_BYTES if day is None or day < today else OPEN_FILE_BYTES


def _added(table: DeltaTable) -> pa.Table:
    return pa.table(table.get_add_actions(flatten=True))


def _files(table: DeltaTable, schema: TableSchema) -> Iterator[tuple[date | None, int]]:
    added = _added(table)
    days = added[f"partition.{HISTORY_DAY}"] if schema.partitioned_by else pa.nulls(added.num_rows)
    return zip(days.to_pylist(), added["size_bytes"].to_pylist(), strict=True)
