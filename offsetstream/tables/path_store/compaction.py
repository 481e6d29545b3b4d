"""Compaction on the driver, without Spark: some milliseconds per file. It never makes another commit fail."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from offsetstream.errors import ConflictError, TablesError
from offsetstream.in_parts import in_parts
from offsetstream.tables.arrow_rows import with_constant_columns
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.files import NewFile, SmallFiles
from offsetstream.tables.matching import with_all_columns
from offsetstream.tables.path_store.data_file import DataFile
from offsetstream.tables.path_store.errors import translated_errors
from offsetstream.tables.path_store.features import has_deletion_vectors, refuse_features
from offsetstream.tables.path_store.file_commits import exchange
from offsetstream.tables.path_store.folder import file_system
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
    for rows in _rows(table, files, day):
        waiting.append(rows)
        size += rows.nbytes
        if size >= _GROUP_BYTES:
            new.write(pa.concat_tables(waiting))
            waiting, size = [], 0
    if waiting:
        new.write(pa.concat_tables(waiting))
    return new.close()


def _rows(table: PathSnapshot, files: list[_Small], day: date | None) -> Iterator[pa.Table]:
    store, schema = file_system(table.where), table.arrow
    constants = {} if day is None else {HISTORY_DAY: day}
    for small in files:
        with store.open_input_file(unquote(small.path)) as opened:
            for part in _parts(pq.ParquetFile(opened)):
                # Some writers also store the partition column in the files.
                own = part.drop_columns([name for name in constants if name in part.column_names])
                yield with_all_columns(with_constant_columns(own, constants), schema)


def _parts(file: pq.ParquetFile) -> Iterator[pa.Table]:
    """Yield the file's rows in parts: a row may have megabytes, and a row group may have a million rows."""
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        rows = max(1, _GROUP_BYTES * group.num_rows // max(1, group.total_byte_size))
        for batch in file.iter_batches(rows, row_groups=[number], use_threads=False):
            yield pa.Table.from_batches([batch])


@again_on_conflict
def _exchange(table: PathSnapshot, gone: set[str], new: list[NewFile]) -> bool:
    """Replace the files, even after other commits; return False if the table no longer has all of them."""
    table.refresh()
    if not gone <= set(pa.table(table.delta.get_add_actions())["path"].to_pylist()):
        return False
    exchange(table, gone, new)
    return True
