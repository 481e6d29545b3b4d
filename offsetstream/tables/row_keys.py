"""Finding the rows that have the same keys as others, in whole Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class _Column:
    """A column of the keys: its values, and what stands for the keys up to it, each by its position."""

    name: str
    values: pa.Array
    so_far: pa.Array


class RowKeys:
    """The keys of rows, which are a few columns of them; null is a value like others.

    A key becomes a number, column by column: the position of what came before it and that of the column's value are one
    number, and its position among those that there are is smaller than the number of rows. So none is too large, and no
    text is made of a key, which took three times as long.
    """

    def __init__(self, rows: pa.Table, names: Sequence[str]) -> None:
        self._columns = list[_Column]()
        numbers: pa.Array | None = None
        for name in names:
            values = pc.unique(rows[name])
            both = _both(numbers, pc.index_in(_whole(rows[name]), value_set=values), len(values))
            self._columns.append(_Column(name, values, pc.unique(both)))
            numbers = pc.index_in(both, value_set=self._columns[-1].so_far)
        self._numbers = numbers

    def find(self, rows: pa.Table) -> pa.Array:
        """Return of each row the position of the first one that has the same key; null where none has it."""
        numbers: pa.Array | None = None
        for column in self._columns:
            own = pc.index_in(_whole(rows[column.name]).cast(column.values.type), value_set=column.values)
            numbers = _known(_both(numbers, own, len(column.values)), column.so_far)
        return _known(numbers, self._numbers)


def among(rows: pa.Table, keys: RowKeys) -> pa.Table:
    """Return the rows whose key is one of `keys`."""
    return rows.filter(pc.is_valid(keys.find(rows)))


def without(rows: pa.Table, keys: RowKeys) -> pa.Table:
    """Return the rows whose key is none of `keys`."""
    return rows.filter(pc.is_null(keys.find(rows)))


def _both(before: pa.Array | None, own: pa.Array, size: int) -> pa.Array:
    own = own.cast(pa.int64())
    return own if before is None else pc.add(pc.multiply(before.cast(pa.int64()), pa.scalar(size, pa.int64())), own)


def _known(numbers: pa.Array, known: pa.Array) -> pa.Array:
    return pc.index_in(numbers, value_set=known, skip_nulls=True)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()
