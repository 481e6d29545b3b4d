"""Collect rows of several tables. Few are Python objects at a time, since these need about ten times the memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from offsetstream.coordinator.rows import Assignments, Row
from offsetstream.tables.plain_rows import Rows, count, from_rows
from offsetstream.tables.schema import TableSchema

ROWS_AT_ONCE = 10_000
_RECORDS_AT_ONCE = 64  # each may be a megabyte of JSON


def to_python(records: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield records as plain rows."""
    for batch in records.to_batches(max_chunksize=_RECORDS_AT_ONCE):
        yield from batch.to_pylist()


class RowPieces:
    """Collects plain rows (times in milliseconds) and converts them to Arrow whenever there are `ROWS_AT_ONCE`."""

    def __init__(self, schemas: Iterable[TableSchema]) -> None:
        self._schemas = {schema.name: schema for schema in schemas}
        self._pieces = {name: [schema.arrow.empty_table()] for name, schema in self._schemas.items()}
        self._waiting: dict[str, list[Row | Assignments]] = {name: [] for name in self._schemas}
        self._rows = 0

    def add(self, found: Mapping[str, Rows]) -> None:
        """Add rows, given by table."""
        for name, rows in found.items():
            self._waiting[name] += rows
            self._rows += count(rows)
        if self._rows >= ROWS_AT_ONCE:
            self._convert()

    def tables(self) -> dict[str, pa.Table]:
        """Return all added rows by table."""
        self._convert()
        return {name: pa.concat_tables(pieces) for name, pieces in self._pieces.items()}

    def _convert(self) -> None:
        for name, rows in self._waiting.items():
            self._pieces[name].append(from_rows(rows, self._schemas[name]))
            rows.clear()
        self._rows = 0
