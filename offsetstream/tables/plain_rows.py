"""Convert plain rows to Arrow tables. Plain rows have times as milliseconds since 1970, in `<name>_ms`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from operator import itemgetter
from typing import Any, cast

import numpy as np
import pyarrow as pa

from offsetstream.coordinator.rows import PARTITION_COLUMNS, Assignments, Row
from offsetstream.tables.arrow_rows import timestamps_of
from offsetstream.tables.schema import ColumnSchema, TableSchema

Rows = Sequence[Row | Assignments]


def flat_rows(rows: Rows) -> list[Row]:
    """Return all rows as one flat list."""
    return [row for each in rows for row in (each.rows() if isinstance(each, Assignments) else (each,))]


def count(rows: Rows) -> int:
    """Return the number of rows."""
    return sum(len(each) if isinstance(each, Assignments) else 1 for each in rows)


def from_rows(rows: Iterable[Row | Assignments], schema: TableSchema) -> pa.Table:
    """Return the rows as an Arrow table; they must all be `Row`, or all be `Assignments`."""
    rows = list(rows)
    if rows and isinstance(rows[0], Assignments):
        return _of_assignments(cast("list[Assignments]", rows), schema)
    plain = cast("list[Row]", rows)
    fields = zip(schema.columns, schema.arrow, strict=True)
    return pa.table([_column(plain, column, field.type) for column, field in fields], schema=schema.arrow)


def _of_assignments(found: Sequence[Assignments], schema: TableSchema) -> pa.Table:
    """Build the columns of assignments. Values that several rows share are converted once and then repeated."""
    by_place = [shared for each in found for shared in each.by_place()]
    shared_schema = replace(schema, columns=tuple(own for own in schema.columns if own.name not in PARTITION_COLUMNS))
    shared = from_rows((row for row, _ in by_place), shared_schema)
    rows = shared.take(np.repeat(np.arange(len(by_place)), [len(partitions) for _, partitions in by_place]))
    # The keys and the values of a dict are in the same order.
    numbers: Iterable[int | None] = chain.from_iterable(partitions for _, partitions in by_place)
    epochs = chain.from_iterable(partitions.values() for _, partitions in by_place)
    for name, values in zip(PARTITION_COLUMNS, (numbers, epochs), strict=True):
        field = schema.arrow.field(name)
        rows = rows.append_column(field, _repeated([*values], field.type))
    return rows.select(schema.column_names)


def _column(rows: Sequence[Row], column: ColumnSchema, type_: pa.DataType) -> pa.Array:
    if column.type == "TIMESTAMP":
        return timestamps_of(_repeated([*map(itemgetter(f"{column.name}_ms"), rows)], pa.int64()))
    return _repeated([*map(itemgetter(column.name), rows)], type_)


def _repeated(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    # Most columns of a group's rows have the same value in all rows: to find that out is faster than to convert them.
    if values and values[0] == values[-1] and values.count(values[0]) == len(values):
        return pa.repeat(pa.scalar(values[0], type_), len(values))
    return pa.array(values, type_)
