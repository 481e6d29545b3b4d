"""What a command prints: columns, rows that may be more than memory, and blocks of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any

from offsetstream.in_parts import in_parts

Row = Mapping[str, Any]

AT_ONCE = 1000  # rows, of which each may be long


@dataclass(frozen=True)
class Column:
    """A column: its name in JSON and CSV; its heading and least width in text (no heading: not in text)."""

    name: str
    heading: str | None = None
    width: int = 0


@dataclass(frozen=True)
class Block:
    """One table of a text: its columns, and the rows of it."""

    columns: Sequence[Column]
    rows: Iterable[Row] = field(default_factory=list)


@dataclass(frozen=True)
class Blocks:
    """Blocks of the same columns one after the other: the values of all by column, and how many rows each has."""

    columns: Sequence[Column]
    values: Mapping[str, Sequence[Any]]
    sizes: Sequence[int]

    def each(self) -> Iterator[Block]:
        """Yield them one by one."""
        rows = (dict(zip(self.values, row, strict=True)) for row in zip(*self.values.values(), strict=True))
        return (Block(self.columns, list(islice(rows, size))) for size in self.sizes)


def together(blocks: Iterable[Block]) -> Iterator[Blocks]:
    """Yield the blocks some at a time: of a million that have a row or two many are laid out at once.

    The rows of a block are in memory.
    """
    for columns, alike in groupby(blocks, key=lambda block: tuple(block.columns)):
        rows_of_each = (list(block.rows) for block in alike)
        for some in in_parts(rows_of_each, AT_ONCE, lambda rows: 1 + len(rows)):
            yield _blocks(columns, some)


def _blocks(columns: Sequence[Column], blocks: Sequence[list[Row]]) -> Blocks:
    values = {column.name: [row.get(column.name) for rows in blocks for row in rows] for column in columns}
    return Blocks(columns, values, [len(rows) for rows in blocks])


class ReadAnew(Iterable[Row]):
    """Rows that are read anew each time that someone goes through them, since there may be more than memory."""

    def __init__(self, read: Callable[[], Iterator[Row]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[Row]:
        return self._read()


class ReadInParts(ReadAnew):
    """Such rows that come some at a time, each column as a list: quicker for a million than their dicts."""

    def __init__(self, read: Callable[[], Iterator[Mapping[str, Sequence[Any]]]]) -> None:
        self.parts = read
        super().__init__(self._rows)

    def _rows(self) -> Iterator[Row]:
        for part in self.parts():
            for row in zip(*part.values(), strict=True):
                yield dict(zip(part, row, strict=True))


def by_column(names: Sequence[str], rows: Iterable[Row]) -> Iterator[list[Sequence[Any]]]:
    """Yield the values of some rows at a time, by column: what is done to many of a kind is done quickly."""
    if isinstance(rows, ReadInParts):
        yield from ([part[name] for name in names] for part in rows.parts())
        return
    left = iter(rows)
    while part := list(islice(left, AT_ONCE)):
        yield [[row.get(name) for row in part] for name in names]
