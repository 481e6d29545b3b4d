"""Rows of several tables, in pieces: few are Python objects at a time, since these need ten times Arrow's memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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


def in_pieces(found: Iterable[Mapping[str, Rows]], schemas: Sequence[TableSchema]) -> Iterator[dict[str, pa.Table]]:
    """Yield plain rows (times in milliseconds), given by table, as Arrow tables of about `ROWS_AT_ONCE` rows together.

    There is at least one piece, and each has all tables.
    """
    waiting: dict[str, list[Row | Assignments]] = {schema.name: [] for schema in schemas}
    size = 0
    for each in found:
        for name, rows in each.items():
            waiting[name] += rows
            size += count(rows)
        if size >= ROWS_AT_ONCE:
            yield _converted(waiting, schemas)
            size = 0
    yield _converted(waiting, schemas)


def joined(pieces: Iterable[Mapping[str, pa.Table]]) -> dict[str, pa.Table]:
    """Return all rows of the pieces by table."""
    parts = list(pieces)
    return {name: pa.concat_tables([part[name] for part in parts]) for name in parts[0]}


def _converted(waiting: Mapping[str, list[Row | Assignments]], schemas: Sequence[TableSchema]) -> dict[str, pa.Table]:
    converted = {schema.name: from_rows(waiting[schema.name], schema) for schema in schemas}
    for rows in waiting.values():
        rows.clear()
    return converted
