"""A Parquet file of a table, in any store: write a new one, on the driver or in Spark's tasks, or read one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler

from offsetstream.tables.files import NewFile
from offsetstream.tables.matching import with_all_columns
from offsetstream.tables.rows import with_constant_columns
from offsetstream.tables.schema import HISTORY_DAY, SKIPPED_BY
from offsetstream.tables.task_rows import TaskWriter

_TEXTS = (pa.string(), pa.binary())
PART_BYTES = 32 << 20  # of rows that are read, or written as a row group, at once


@dataclass(frozen=True)
class FileReader:
    """Reads single files of a table as it was opened: of the place `where`, with the columns `schema`.

    `reading` translates errors.
    """

    where: str
    schema: pa.Schema
    reading: Callable[[], AbstractContextManager[None]]

    def rows(
        self, path: str, columns: Sequence[str] = (), constants: Mapping[str, Any] | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows of a file, part by part: a row may have megabytes, and a row group may have a million rows.

        `path`: as in the log. `columns`: only these; else all of the table, which are null if the file lacks them.
        `constants`: columns that only the log has.
        """
        given = constants or {}
        schema = pa.schema([self.schema.field(name) for name in columns]) if columns else self.schema
        with self.reading(), file_system(self.where).open_input_file(unquote(path)) as opened:
            # Spark writes times as INT96, which Arrow would read as nanoseconds: these end in 2262.
            file = pq.ParquetFile(opened, coerce_int96_timestamp_unit="us")
            # Some writers also store the partition columns in the files.
            own = [name for name in file.schema_arrow.names if name in schema.names and name not in given]
            for number in range(file.num_row_groups):
                group = file.metadata.row_group(number)
                rows = max(1, PART_BYTES * group.num_rows // max(1, group.total_byte_size))
                for batch in file.iter_batches(rows, row_groups=[number], columns=own, use_threads=False):
                    yield with_all_columns(with_constant_columns(pa.Table.from_batches([batch]), given), schema)


@dataclass
class DataFile:
    """A new file in a table's folder, created with the first rows; for a history, in the partition of `day`."""

    folder: str
    day: date | None
    kind: str = "part"  # how its name begins
    _path: str = ""
    _file: Any = None
    _writer: pq.ParquetWriter | None = None
    _rows: int = 0
    _ranges: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    _nulls: Counter[str] = field(default_factory=Counter)

    def write(self, rows: pa.Table) -> None:
        """Write rows as one row group; they must have all columns of the table."""
        if not rows.num_rows:
            return
        if self.day is not None:
            rows = rows.drop_columns([HISTORY_DAY])
        if self._writer is None:
            within = "" if self.day is None else f"{HISTORY_DAY}={self.day}/"
            self._path = f"{within}{self.kind}-{uuid4()}.snappy.parquet"
            self._file = file_system(self.folder).open_output_stream(self._path)
            # A dictionary of numbers that hardly repeat makes a file a third larger.
            texts = [field.name for field in rows.schema if field.type in _TEXTS]
            self._writer = pq.ParquetWriter(self._file, rows.schema, use_dictionary=texts)
        self._writer.write_table(rows)
        self._rows += rows.num_rows
        # Files of state tables get no ranges: if only some columns have one, delta-rs's pyarrow dataset (1.6) treats
        # the other columns as empty.
        if self.day is not None:
            for name in SKIPPED_BY:
                if name in rows.column_names:
                    self._count(name, rows[name])

    def _count(self, name: str, values: pa.ChunkedArray) -> None:
        self._nulls[name] += values.null_count
        least, most = pc.min_max(values).as_py().values()
        if least is not None:
            before = self._ranges.get(name, (least, most))
            self._ranges[name] = (min(least, before[0]), max(most, before[1]))

    def close(self) -> NewFile | None:
        """Finish the file and return it; None if there were no rows."""
        if self._writer is None:
            return None
        self._writer.close()
        size = self._file.tell()
        self._file.close()
        statistics: dict[str, Any] = {"numRecords": self._rows}
        if self.day is not None:
            statistics["minValues"] = {name: _bound(least) for name, (least, _) in self._ranges.items()}
            statistics["maxValues"] = {name: _bound(most, up=True) for name, (_, most) in self._ranges.items()}
            statistics["nullCount"] = self._nulls
        return NewFile(self._path, None if self.day is None else str(self.day), size, json.dumps(statistics))


def _bound(value: int | datetime, *, up: bool = False) -> int | str:
    """Return a limit of a range in Delta's format: times are rounded outwards to milliseconds."""
    if not isinstance(value, datetime):
        return value
    beyond = timedelta(microseconds=-value.microsecond % 1000 if up else -(value.microsecond % 1000))
    return f"{value + beyond:%Y-%m-%dT%H:%M:%S}.{(value + beyond).microsecond // 1000:03d}Z"


class FileWriter(TaskWriter):
    """Writes the rows to one file, for a history in the partition of the signature's day."""

    def __init__(self, folder: str, name: str, signature: Mapping[str, Any]) -> None:
        super().__init__(name, signature)
        self._file = DataFile(folder, self._signature.get(HISTORY_DAY))

    def _put(self, rows: pa.Table) -> list[bytes]:
        self._file.write(rows)
        return []

    def _finished(self) -> NewFile | None:
        return self._file.close()


def file_system(table: str) -> pafs.PyFileSystem:
    """Return the folder of a table as an Arrow file system."""
    return pafs.PyFileSystem(DeltaStorageHandler(table))
