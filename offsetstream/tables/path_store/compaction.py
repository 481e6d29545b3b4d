"""Small files put together by the driver, without Spark: some milliseconds a file, and no other's commit is lost."""

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
from offsetstream.tables.arrow_rows import with_constants
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.files import Crowd, NewFile
from offsetstream.tables.matching import completed
from offsetstream.tables.path_store.data_file import DataFile
from offsetstream.tables.path_store.errors import told
from offsetstream.tables.path_store.features import has_deletion_vectors, refuse_features
from offsetstream.tables.path_store.file_commits import exchange
from offsetstream.tables.path_store.folder import file_system
from offsetstream.tables.schema import HISTORY_DAY

if TYPE_CHECKING:
    from offsetstream.tables.path_store.snapshot import PathSnapshot

_GROUP_BYTES = 32 << 20  # of the rows of a row group, which are in memory


class _Small(NamedTuple):
    path: str
    size: int


def compact(table: PathSnapshot, crowd: Crowd) -> None:
    """Put the crowd's files together to files of its target; TablesError if the table has a feature that forbids it."""
    refuse_features(table.delta)
    if has_deletion_vectors(table.delta):
        raise TablesError(f"the files of {table.where} cannot be put together: they may have deletion vectors")
    for files in _bins(_small_files(table, crowd), crowd.target_bytes):
        with told(table.where, "compact"):
            new = _write(table, files, crowd.day)
        if not _exchange(table, {file.path for file in files}, [new] if new else []):
            raise ConflictError(f"files of {table.where} were taken away while they were put together")


def _small_files(table: PathSnapshot, crowd: Crowd) -> Iterator[_Small]:
    for file in pa.table(table.delta.get_add_actions(flatten=True)).to_pylist():
        is_there = file.get(f"partition.{HISTORY_DAY}") == crowd.day
        if is_there and file["size_bytes"] < crowd.target_bytes // 2:
            yield _Small(file["path"], file["size_bytes"])


def _bins(files: Iterator[_Small], target: int) -> Iterator[list[_Small]]:
    """Return files that together are about the target; none that would stay alone."""
    return (held for held in in_parts(files, target, attrgetter("size")) if len(held) > 1)


def _write(table: PathSnapshot, files: list[_Small], day: date | None) -> NewFile | None:
    new, held, size = DataFile(table.where, day), list[pa.Table](), 0
    for rows in _rows(table, files, day):
        held.append(rows)
        size += rows.nbytes
        if size >= _GROUP_BYTES:
            new.write(pa.concat_tables(held))
            held, size = [], 0
    if held:
        new.write(pa.concat_tables(held))
    return new.close()


def _rows(table: PathSnapshot, files: list[_Small], day: date | None) -> Iterator[pa.Table]:
    store, schema = file_system(table.where), table.arrow
    constants = {} if day is None else {HISTORY_DAY: day}
    for small in files:
        with store.open_input_file(unquote(small.path)) as opened:
            for part in _parts(pq.ParquetFile(opened)):
                # Some writers put the column by which files lie apart into them too.
                own = part.drop_columns([name for name in constants if name in part.column_names])
                yield completed(with_constants(own, constants), schema)


def _parts(file: pq.ParquetFile) -> Iterator[pa.Table]:
    """Yield the file's rows a part at a time: a row may be megabytes, and a row group a million rows."""
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        rows = max(1, _GROUP_BYTES * group.num_rows // max(1, group.total_byte_size))
        for batch in file.iter_batches(rows, row_groups=[number], use_threads=False):
            yield pa.Table.from_batches([batch])


@again_on_conflict
def _exchange(table: PathSnapshot, gone: set[str], new: list[NewFile]) -> bool:
    """Exchange the files whatever else was written to the table since; tells whether they were still the table's."""
    table.refresh()
    if not gone <= set(pa.table(table.delta.get_add_actions())["path"].to_pylist()):
        return False
    exchange(table, gone, new)
    return True
