"""Find rows by their keys, with Arrow columns instead of row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class _Column:
    """A column of the keys: its distinct values, and the distinct numbers of the keys up to this column.

    A value or a key is represented by its position in these arrays.
    """

    name: str
    values: pa.Array
    so_far: pa.Array


class RowKeys:
    """The keys of rows; a key is some of the columns, and null is a value like any other.

    Each key becomes a number, column by column: the number so far and the position of the column's value are combined
    into one number, which is then replaced by its position among the distinct ones. So no number is greater than the
    number of rows times the number of values. To turn keys into text took three times as long.
    """

    def __init__(self, rows: pa.Table, names: Sequence[str]) -> None:
        self._columns = list[_Column]()
        numbers: pa.Array | None = None
        for name in names:
            values = pc.unique(rows[name])
            numbers_here = _combined(numbers, pc.index_in(_one_chunk(rows[name]), value_set=values), len(values))
            self._columns.append(_Column(name, values, pc.unique(numbers_here)))
            numbers = pc.index_in(numbers_here, value_set=self._columns[-1].so_far)
        self._numbers = numbers

    def find(self, rows: pa.Table) -> pa.Array:
        """Return for each row the position of the first known row with the same key; null if there is none."""
        numbers: pa.Array | None = None
        for column in self._columns:
            own = pc.index_in(_one_chunk(rows[column.name]).cast(column.values.type), value_set=column.values)
            numbers = _positions(_combined(numbers, own, len(column.values)), column.so_far)
        return _positions(numbers, self._numbers)


def rows_with_keys(rows: pa.Table, keys: RowKeys) -> pa.Table:
    """Return the rows whose key is one of `keys`."""
    return rows.filter(pc.is_valid(keys.find(rows)))


def rows_without_keys(rows: pa.Table, keys: RowKeys) -> pa.Table:
    """Return the rows whose key is not one of `keys`."""
    return rows.filter(pc.is_null(keys.find(rows)))


def _combined(before: pa.Array | None, own: pa.Array, size: int) -> pa.Array:
    own = own.cast(pa.int64())
    return own if before is None else pc.add(pc.multiply(before.cast(pa.int64()), pa.scalar(size, pa.int64())), own)


def _positions(numbers: pa.Array, known: pa.Array) -> pa.Array:
    return pc.index_in(numbers, value_set=known, skip_nulls=True)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()
