"""Files of a table that Spark tasks write, in the table's folder."""

from __future__ import annotations

from datetime import date

import pyarrow as pa

from offsetstream.tables.files import NewFile
from offsetstream.tables.path_store.data_file import DataFile
from offsetstream.tables.schema import is_history
from offsetstream.tables.task_rows import TaskWriter
from offsetstream.tables.transaction import BatchId


class FileWriter(TaskWriter):
    """Writes the rows to one file, for a history in the partition of `day`."""

    def __init__(self, folder: str, name: str, batch: BatchId, day: date) -> None:
        super().__init__(name, batch, day)
        self._file = DataFile(folder, day if is_history(name) else None)

    def _put(self, rows: pa.Table) -> list[bytes]:
        self._file.write(rows)
        return []

    def _finished(self) -> NewFile | None:
        return self._file.close()
