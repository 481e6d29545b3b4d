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
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction

from offsetstream.errors import TablesError
from offsetstream.tables.arrow_rows import conform, with_constants
from offsetstream.tables.files import NewFile, TaskWriter
from offsetstream.tables.path_store.commits import commit_of
from offsetstream.tables.path_store.errors import told
from offsetstream.tables.path_store.features import constraints
from offsetstream.tables.path_store.folder import file_system
from offsetstream.tables.schema import HISTORY_DAY, load_schema
from offsetstream.tables.store import Transaction
from offsetstream.tables.tally import Tally
from offsetstream.tables.transaction import BatchId

if TYPE_CHECKING:
    from offsetstream.tables.path_store.snapshot import PathSnapshot

_STATISTICS = ("offsets_partition", "record_offset", "checkpoint_id", "batch_id")  # what readers skip files by


@dataclass
class FileWriter(TaskWriter):
    """Writes rows of the history `name` to one file of a day in its `folder`, made with the first of them."""

    folder: str
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
            self._file = file_system(self.folder).open_output_stream(self._path)
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


def append_written(table: PathSnapshot, files: Sequence[NewFile], transactions: Sequence[Transaction]) -> None:
    """Give the files to the table in one commit; TablesError if they are not there."""
    _require(table.where, files)
    if constraints(table.delta):  # which nobody has asked of the files
        table.append(_rows_of(table.where, files), *transactions)
        return
    now = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [
        AddAction(new.path, new.size, {HISTORY_DAY: new.day}, now, True, new.statistics) for new in files
    ]
    with told(table.where, "write to"):
        table.delta.create_write_transaction(
            actions,
            "append",
            table.delta.schema(),
            partition_by=[HISTORY_DAY],
            commit_properties=commit_of(transactions),
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
