"""Files of a table that Spark's Python workers write: rows of a DataFrame, and the history rows of a load.

Spark's own write would pass each value through rows of the JVM, which for millions of commits takes most of a load's
time. Spark would also commit itself, and on S3 Spark and delta-rs do not see each other's commits (`file_commits.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.tables.arrow_rows import conform, with_constant_columns
from offsetstream.tables.files import NewFile, TaskWriter
from offsetstream.tables.matching import with_all_columns
from offsetstream.tables.path_store.data_file import DataFile
from offsetstream.tables.schema import HISTORY_DAY, load_schema
from offsetstream.tables.tally import Tally
from offsetstream.tables.transaction import BatchId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REPORT = "path string, day string, size bigint, statistics string"


class HistoryWriter(TaskWriter):
    """Writes rows of the history `name` to one file of a day in `folder`, and counts them for the ledger."""

    def __init__(self, folder: str, name: str, batch: BatchId, day: date) -> None:
        self._name = name
        self._signature = batch.signature(day)
        self._file = DataFile(folder, day)
        self._tally = Tally(name)

    def write(self, rows: pa.Table) -> None:
        """Write rows as one row group; they must have all columns except the three of `SIGNATURE`."""
        if rows.num_rows:
            rows = conform(with_constant_columns(rows, self._signature), load_schema(self._name))
            self._tally.add(rows)
            self._file.write(rows)

    def close(self) -> NewFile | None:
        """Finish the file and return it; None if there were no rows."""
        new = self._file.close()
        return new and replace(new, counted=[asdict(each) for each in self._tally.entries])


def written_by_tasks(rows: DataFrame, folder: str, schema: pa.Schema) -> list[NewFile]:
    """Let each Spark task write its rows to new files of the table; columns that they lack become null."""
    written = rows.mapInArrow(partial(_write, folder=folder, schema=schema), _REPORT)
    return [NewFile(**row.asDict()) for row in written.collect()]


def _write(batches: Iterator[pa.RecordBatch], folder: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    files: dict[date | None, DataFile] = {}
    for batch in batches:
        for day, rows in _by_day(with_all_columns(pa.Table.from_batches([batch]), schema)):
            files.setdefault(day, DataFile(folder, day)).write(rows)
    for file in files.values():
        if (new := file.close()) is not None:
            report = {"path": new.path, "day": new.day, "size": new.size, "statistics": new.statistics}
            yield pa.RecordBatch.from_pylist([report])


def _by_day(rows: pa.Table) -> Iterator[tuple[date | None, pa.Table]]:
    if HISTORY_DAY not in rows.column_names:
        yield None, rows
        return
    for day in pc.unique(rows[HISTORY_DAY]).to_pylist():
        yield day, rows.filter(pc.equal(rows[HISTORY_DAY], day))
