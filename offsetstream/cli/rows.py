"""What a command prints: columns, rows that may exceed memory, and blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any

from offsetstream.in_parts import in_parts

Row = Mapping[str, Any]

ROWS_PER_PART = 1000  # rows; few enough for memory, since each may be long


@dataclass(frozen=True)
class Column:
    """A column: its name in JSON and CSV, and its heading and minimum width in text (no heading: not in text)."""

    name: str
    heading: str | None = None
    width: int = 0


@dataclass(frozen=True)
class Block:
    """One table in a text: its columns and rows."""

    columns: Sequence[Column]
    rows: Iterable[Row] = field(default_factory=list)


@dataclass(frozen=True)
class Blocks:
    """Consecutive blocks with the same columns: the values of all blocks by column, and the size of each block."""

    columns: Sequence[Column]
    values: Mapping[str, Sequence[Any]]
    sizes: Sequence[int]

    def each(self) -> Iterator[Block]:
        """Yield the blocks one by one."""
        rows = (dict(zip(self.values, row, strict=True)) for row in zip(*self.values.values(), strict=True))
        return (Block(self.columns, list(islice(rows, size))) for size in self.sizes)


def merge_blocks(blocks: Iterable[Block]) -> Iterator[Blocks]:
    """Merge blocks into larger units, so that a million small ones are laid out quickly.

    The rows of a block must fit into memory.
    """
    for columns, alike in groupby(blocks, key=lambda block: tuple(block.columns)):
        rows_of_each = (list(block.rows) for block in alike)
        for some in in_parts(rows_of_each, ROWS_PER_PART, lambda rows: 1 + len(rows)):
            yield _blocks(columns, some)


def _blocks(columns: Sequence[Column], blocks: Sequence[list[Row]]) -> Blocks:
    values = {column.name: [row.get(column.name) for rows in blocks for row in rows] for column in columns}
    return Blocks(columns, values, [len(rows) for rows in blocks])


class RereadRows(Iterable[Row]):
    """Rows that are read again at each iteration, since they may exceed memory."""

    def __init__(self, read: Callable[[], Iterator[Row]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[Row]:
        return self._read()


class RereadParts(RereadRows):
    """Such rows in parts, with each column as a list: for a million rows faster than dicts."""

    def __init__(self, read: Callable[[], Iterator[Mapping[str, Sequence[Any]]]]) -> None:
        self.parts = read
        super().__init__(self._rows)

    def _rows(self) -> Iterator[Row]:
        for part in self.parts():
            for row in zip(*part.values(), strict=True):
                yield dict(zip(part, row, strict=True))


def by_column(names: Sequence[str], rows: Iterable[Row]) -> Iterator[list[Sequence[Any]]]:
    """Yield the values of some rows at a time, by column: handling one column at a time is fast."""
    if isinstance(rows, RereadParts):
        yield from ([part[name] for name in names] for part in rows.parts())
        return
    remaining = iter(rows)
    while part := list(islice(remaining, ROWS_PER_PART)):
        yield [[row.get(name) for row in part] for name in names]
