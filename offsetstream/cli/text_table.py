"""Tables as text, in the layout of Kafka's own tools (reference 8.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

from offsetstream.cli.rows import AT_ONCE, Block, Column, ReadAnew, Row, by_column
from offsetstream.cli.tell import printable

_MISSING = "-"
# A longer cell stands out of its column: padding all others to 32,767 characters would make gigabytes of spaces.
_WIDEST = 250
_Cells = Sequence[list[str]]  # by column


def text_lines(block: Block) -> Iterator[str]:
    """Yield the heading and the rows, some lines at a time."""
    columns = _shown(block.columns)
    names = [column.name for column in columns]

    def parts() -> Iterator[_Cells]:
        return (list(map(_text_cells, values)) for values in by_column(names, block.rows))

    # Rows that are in memory become text once, others for their widths, and again.
    texts = parts if isinstance(block.rows, ReadAnew) else partial(iter, list(parts()))
    widths = _least_widths(columns)
    for part in texts():
        widths = [*map(_width, widths, part)]
    heading, line = _layout(_headings(columns), tuple(widths))
    yield heading
    for part in texts():
        yield _lines(line, part)


def lines_of_blocks(blocks: Iterable[Block]) -> Iterator[str]:
    """Yield the blocks, each after an empty line; of a million that have a row or two many are made together.

    The rows of a block are in memory.
    """
    for columns, alike in groupby(blocks, key=lambda block: tuple(block.columns)):
        shown, waiting, size = _shown(columns), list[list[Row]](), 0
        for block in alike:
            waiting.append(list(block.rows))
            size += 1 + len(waiting[-1])
            if size >= AT_ONCE:
                yield from _together(shown, waiting)
                waiting, size = [], 0
        yield from _together(shown, waiting)


def _together(columns: Sequence[Column], blocks: Sequence[list[Row]]) -> Iterator[str]:
    cells = [_text_cells([row.get(column.name) for rows in blocks for row in rows]) for column in columns]
    headings, least, end = _headings(columns), _least_widths(columns), 0
    for rows in blocks:
        start, end = end, end + len(rows)
        own = [column[start:end] for column in cells]
        heading, line = _layout(headings, tuple(map(_width, least, own)))
        yield f"\n{heading}{_lines(line, own)}"


def _shown(columns: Iterable[Column]) -> list[Column]:
    return [column for column in columns if column.heading is not None]


def _headings(columns: Iterable[Column]) -> tuple[str, ...]:
    return tuple(str(column.heading) for column in columns)


def _least_widths(columns: Iterable[Column]) -> list[int]:
    return [max(column.width, len(str(column.heading))) for column in columns]


def _width(least: int, cells: list[str]) -> int:
    longest = max(map(len, cells), default=0)
    if longest > _WIDEST:
        longest = max((length for length in map(len, cells) if length <= _WIDEST), default=0)
    return max(least, longest)


@lru_cache(maxsize=1000)
def _layout(headings: tuple[str, ...], widths: tuple[int, ...]) -> tuple[str, Callable[..., str]]:
    """Return the line of the headings, and what makes a line of the cells of a row."""
    line = " ".join(f"{{:<{width}}}" for width in widths).format
    return _lines(line, [[heading] for heading in headings]), line


def _lines(line: Callable[..., str], cells: _Cells) -> str:
    return "".join([text.rstrip(" ") + "\n" for text in map(line, *cells)])


def _text_cells(values: Sequence[Any]) -> list[str]:
    """Return the cells of a column; of 100,000 most are texts and numbers, for which no function is called."""
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
    """Return what stands for a value in text: nothing of it moves the cursor."""
    if value is None:
        return _MISSING
    if isinstance(value, bool):
        return str(value).lower()
    return printable(str(value))
