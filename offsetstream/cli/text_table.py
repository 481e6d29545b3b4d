"""Format tables as text, in the layout of Kafka's own tools (reference 8.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain, islice, starmap
from typing import Any

from offsetstream.cli.messages import printable
from offsetstream.cli.rows import Block, Blocks, Column, RereadRows, by_column

_MISSING = "-"
# A longer cell overflows its column: padding all other cells to 32,767 characters would print gigabytes of spaces.
_WIDEST = 250
_Cells = Sequence[list[str]]  # by column


def text_lines(block: Block) -> Iterator[str]:
    """Yield the heading, then the rows in chunks of lines."""
    columns = _shown(block.columns)
    names = [column.name for column in columns]

    def parts() -> Iterator[_Cells]:
        return (list(map(_text_cells, values)) for values in by_column(names, block.rows))

    # Rows in memory become text once. Others do twice: for the widths of columns, then to print them.
    texts = parts if isinstance(block.rows, RereadRows) else partial(iter, list(parts()))
    widths = _least_widths(columns)
    for part in texts():
        widths = [*chain(*map(partial(_widths, [len(part[0])]), widths, part))]
    heading, line = _layout(_headings(columns), tuple(widths))
    yield heading
    for part in texts():
        yield _lines(line, zip(*part, strict=True))


def lines_of_blocks(blocks: Blocks) -> Iterator[str]:
    """Yield each block after an empty line."""
    columns = _shown(blocks.columns)
    cells = [_text_cells(blocks.values[column.name]) for column in columns]
    widths_by_block = zip(*map(partial(_widths, blocks.sizes), _least_widths(columns), cells), strict=True)
    headings, rows = _headings(columns), zip(*cells, strict=True)
    for size, widths in zip(blocks.sizes, widths_by_block, strict=True):
        heading, line = _layout(headings, widths)
        yield f"\n{heading}{_lines(line, islice(rows, size))}"


def _widths(sizes: Sequence[int], least: int, cells: list[str]) -> list[int]:
    """Return the width of a column in each block."""
    lengths = list(map(len, cells))
    if max(lengths, default=0) <= least:
        return [least] * len(sizes)
    shown = iter([length if length <= _WIDEST else 0 for length in lengths])
    return [max(chain((least,), islice(shown, size))) for size in sizes]


def _shown(columns: Iterable[Column]) -> list[Column]:
    return [column for column in columns if column.heading is not None]


def _headings(columns: Iterable[Column]) -> tuple[str, ...]:
    return tuple(str(column.heading) for column in columns)


def _least_widths(columns: Iterable[Column]) -> list[int]:
    return [max(column.width, len(str(column.heading))) for column in columns]


@lru_cache(maxsize=1000)
def _layout(headings: tuple[str, ...], widths: tuple[int, ...]) -> tuple[str, Callable[..., str]]:
    """Return the heading line, and a function that formats the cells of a row as a line."""
    line = " ".join(f"{{:<{width}}}" for width in widths).format
    return _lines(line, [headings]), line


def _lines(line: Callable[..., str], rows: Iterable[Sequence[str]]) -> str:
    return "".join([text.rstrip(" ") + "\n" for text in starmap(line, rows)])


def _text_cells(values: Sequence[Any]) -> list[str]:
    """Return the cells of a column as text. Texts and numbers, the most common, need no function call."""
    return [
        value
        if type(value) is str and value.isprintable()
        else str(value)
        if type(value) is int
        else _MISSING
        if value is None
        else text_cell(value)
        for value in values
    ]


def text_cell(value: Any) -> str:
    """Return a value as text, without control characters."""
    if value is None:
        return _MISSING
    if isinstance(value, bool):
        return str(value).lower()
    return printable(str(value))
