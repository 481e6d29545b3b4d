"""Rows of a history that Spark's Python workers write as files, and the commit that makes these the table's.

Spark's own write takes each value through rows of the JVM: for millions of commits that would be most of a load's time.
A file that is never committed, as of a task that failed, is none of the table's; VACUUM removes it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction

from offsetstream.errors import TablesError
from offsetstream.tables.arrow_rows import conform, with_constants
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.features import constraints
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.replace import add_rows
from offsetstream.tables.schema import HISTORY_DAY, load_schema
from offsetstream.tables.small_tables import is_done, transaction
from offsetstream.tables.tally import Tally
from offsetstream.tables.transaction import BatchId

_STATISTICS = ("offsets_partition", "record_offset", "checkpoint_id", "batch_id")  # what readers skip files by


@dataclass(frozen=True)
class NewFile:
    """A file of rows that is not the table's yet; ``path`` is within the table's folder, ``counted`` for its ledger."""

    path: str
    day: str
    size: int
    statistics: str
    counted: list[dict[str, Any]]


@dataclass
class FileWriter:
    """Writes rows of a history table to one file of a day, which is made with the first of them."""

    tables: PathStore
    name: str
    batch: BatchId
    day: date
    _path: str = ""
    _file: Any = None
    _writer: pq.ParquetWriter | None = None
    _rows: int = 0
    _tally: Tally | None = None
    _ranges: dict[str, tuple[int, int]] = field(default_factory=dict)

    def write(self, rows: pa.Table) -> None:
        """Append rows, as a row group of their own; they have all columns but the three that say who wrote them."""
        if not rows.num_rows:
            return
        schema = load_schema(self.name)
        rows = conform(with_constants(rows, self.batch.signature(self.day)), schema)
        self._tally = self._tally or Tally(self.name)
        self._tally.add(rows)
        rows = rows.drop_columns([HISTORY_DAY])
        if self._writer is None:
            self._path = f"{HISTORY_DAY}={self.day}/part-{uuid4()}.snappy.parquet"
            self._file = file_system(self.tables.table(self.name)).open_output_stream(self._path)
            self._writer = pq.ParquetWriter(self._file, rows.schema)
        self._writer.write_table(rows)
        self._rows += rows.num_rows
        for name in _STATISTICS:
            least, most = pc.min_max(rows[name]).as_py().values()
            before = self._ranges.get(name, (least, most))
            self._ranges[name] = (min(least, before[0]), max(most, before[1]))

    def close(self) -> NewFile | None:
        """Finish the file; None if there were no rows."""
        if self._writer is None:
            return None
        self._writer.close()
        size = self._file.tell()
        self._file.close()
        statistics = {
            "numRecords": self._rows,
            "minValues": {name: least for name, (least, _) in self._ranges.items()},
            "maxValues": {name: most for name, (_, most) in self._ranges.items()},
            "nullCount": dict.fromkeys(self._ranges, 0),
        }
        counted = [asdict(each) for each in self._tally.entries] if self._tally else []
        return NewFile(self._path, str(self.day), size, json.dumps(statistics), counted)


@again_on_conflict
def append_files(tables: PathStore, name: str, files: Sequence[NewFile], batch: BatchId) -> None:
    """Give the files to the history table in one commit, once per batch; TablesError if they are not there."""
    table = DeltaTable(tables.table(name))
    now = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [
        AddAction(new.path, new.size, {HISTORY_DAY: new.day}, now, True, new.statistics) for new in files
    ]
    if actions and not is_done(table, name, batch):
        _require(tables.table(name), files)
        if constraints(table):  # which nobody has asked of the files
            add_rows(table, _rows_of(tables.table(name), files), transaction(table, name, batch))
            return
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            partition_by=[HISTORY_DAY],
            commit_properties=transaction(table, name, batch),
        )


def _rows_of(table: str, files: Sequence[NewFile]) -> Iterator[pa.Table]:
    store = file_system(table)
    with ThreadPoolExecutor(1) as reader:  # a write that takes the rows cannot read from its own threads
        for new in files:
            file = reader.submit(lambda path: pq.ParquetFile(store.open_input_file(path)), new.path).result()
            day = {HISTORY_DAY: date.fromisoformat(new.day)}
            for part in range(file.num_row_groups):
                yield with_constants(reader.submit(file.read_row_group, part).result(), day)


def _require(table: str, files: Sequence[NewFile]) -> None:
    found = file_system(table).get_file_info([new.path for new in files])
    if any(info.size != new.size for info, new in zip(found, files, strict=True)):
        raise TablesError(
            f"Spark's tasks wrote files of {table} that are not there for the driver: name a place by --tables that "
            "all of them reach"
        )


def file_system(table: str) -> pafs.PyFileSystem:
    """Return the folder of a table, wherever it lies, as Arrow's file system."""
    return pafs.PyFileSystem(DeltaStorageHandler(table))
