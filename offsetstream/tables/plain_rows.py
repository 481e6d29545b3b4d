"""Plain rows as Arrow tables: rows whose times are milliseconds since 1970, in `<name>_ms`."""

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


def flat(rows: Rows) -> list[Row]:
    """Return the rows one by one."""
    return [row for each in rows for row in (each.rows() if isinstance(each, Assignments) else (each,))]


def count(rows: Rows) -> int:
    """Return how many rows there are."""
    return sum(len(each) if isinstance(each, Assignments) else 1 for each in rows)


def from_rows(rows: Iterable[Row | Assignments], schema: TableSchema) -> pa.Table:
    """Return an Arrow table of rows, of which all are given one by one, or all as assignments."""
    rows = list(rows)
    if rows and isinstance(rows[0], Assignments):
        return _of_assignments(cast("list[Assignments]", rows), schema)
    plain = cast("list[Row]", rows)
    fields = zip(schema.columns, schema.arrow, strict=True)
    return pa.table([_column(plain, column, field.type) for column, field in fields], schema=schema.arrow)


def _of_assignments(found: Sequence[Assignments], schema: TableSchema) -> pa.Table:
    """Return the rows by column: what the rows of a place share is converted once, and taken for each."""
    by_place = [shared for each in found for shared in each.by_place()]
    of_place = replace(schema, columns=tuple(own for own in schema.columns if own.name not in PARTITION_COLUMNS))
    shared = from_rows((row for row, _ in by_place), of_place)
    rows = shared.take(np.repeat(np.arange(len(by_place)), [len(partitions) for _, partitions in by_place]))
    # A dictionary's keys and its values are in the same order.
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
    # As most columns of one group's rows do, it may say the same all over, which is seen sooner than it is converted.
    if values and values[0] == values[-1] and values.count(values[0]) == len(values):
        return pa.repeat(pa.scalar(values[0], type_), len(values))
    return pa.array(values, type_)
