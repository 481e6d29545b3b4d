"""Print tables: as text in Kafka's layout (reference 8.4) for people, as JSON, or as CSV (RFC 4180).

On a terminal, text is laid out for its window: numbers have thousands separators, wide cells are cut, long answers go
to a pager. A pipe or a file gets everything, uncut.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, islice, starmap
from pathlib import Path
from typing import Any, Literal

import click

from offsetstream.cli.text import allows_color, printable
from offsetstream.control_characters import without_controls
from offsetstream.errors import OffsetstreamError, UsageError
from offsetstream.in_parts import in_parts

Row = Mapping[str, Any]
Closing = str | Callable[[], str | None] | None
# What the values of a column are. `number` counts something. `id` is a number that names something, such as an offset:
# it is printed as people type it again.
Unit = Literal["text", "number", "id", "time", "duration", "level", "member"]

ROWS_PER_PART = 1000  # rows; few enough for memory, since each may be long
_MISSING = "-"
# A longer cell overflows its column: padding all other cells to 32,767 characters would print gigabytes of spaces.
_WIDEST = 250
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EIO}  # another try may succeed
_PIECE = 1 << 16  # characters per write


@dataclass(frozen=True)
class Column:
    """A column: its name in JSON and CSV, and its heading and minimum width in text (no heading: not in text).

    `of` is the key of the value that it shows, and `sort` of the value by which it is sorted, if not its name.
    """

    name: str
    heading: str | None = None
    width: int = 0
    unit: Unit = "text"
    of: str | None = None
    sort: str | None = None

    @property
    def is_right(self) -> bool:
        """Whether text has its cells at the right: digits of the same weight stand below each other."""
        return self.unit in {"number", "id", "duration"}


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
            values = {column.name: [row.get(column.name) for rows in some for row in rows] for column in columns}
            yield Blocks(columns, values, [len(rows) for rows in some])


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


@dataclass(frozen=True)
class Chosen:
    """Which rows of an answer are printed, in which order: `--sort` and `--limit`."""

    sort: str | None = None
    limit: int | None = None

    def rows(self, columns: Sequence[Column], rows: Iterable[Row], order: str | None) -> tuple[Iterable[Row], int]:
        """Return the rows to print, and how many are left out. Without `--sort`, `order` sorts them like it.

        Raise click's UsageError if there is no such column.
        """
        if order := self.sort or order:
            rows = sort_rows(columns, rows, order)
        if self.limit is None:
            return rows, 0
        every = list(rows)
        return every[: self.limit], max(0, len(every) - self.limit)

    def __bool__(self) -> bool:
        return self.sort is not None or self.limit is not None


def sort_rows(columns: Sequence[Column], rows: Iterable[Row], by: str) -> list[Row]:
    """Sort by `COLUMN` or `COLUMN:desc`, named by its heading or its JSON name; rows without a value come last.

    A heading counts before a JSON name, and levels sort by their severity.
    """
    name, _, direction = by.partition(":")
    found = [each for each in columns if _plain(name) in {_plain(each.name), _plain(each.heading or each.name)}]
    if not found or direction not in {"", "asc", "desc"}:
        names = ", ".join(each.name for each in columns)
        raise click.UsageError(f"--sort {by}: give COLUMN or COLUMN:desc, with one of {names}")
    column = next((each for each in found if each.heading and _plain(each.heading) == _plain(name)), found[0])
    key = column.sort or column.of or column.name
    cells = ((row.get(key, row.get(column.name)), row) for row in rows)
    values = [(_sort_key(_SEVERITY.get(cell, cell) if column.unit == "level" else cell), row) for cell, row in cells]
    known = [each for each in values if each[0] is not None]
    known.sort(key=lambda each: each[0], reverse=direction == "desc")
    return [row for _, row in [*known, *(each for each in values if each[0] is None)]]


_SEVERITY = {"OK": 0, "NOTFOUND": 1, "UNKNOWN": 2, "WARN": 3, "ERR": 4}  # Burrow's NOTFOUND: no such group


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").removeprefix("#")


def _sort_key(value: Any) -> Any:
    """Return the key of a value: numbers come before texts."""
    if value is None:
        return None
    return (0, value, "") if isinstance(value, int | float) else (1, 0, str(value))


@dataclass(frozen=True)
class Terminal:
    """The window that text is printed to. `columns`: of characters, None for as many as needed."""

    columns: int | None
    lines: int
    has_color: bool


def terminal() -> Terminal | None:
    """Return the terminal that standard output is; None for a pipe or a file."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    size = shutil.get_terminal_size()
    return Terminal(size.columns, size.lines, allows_color())


class Output:
    """Prints UTF-8 to stdout or to `file`. `output_format` is text, json or csv.

    In CSV an apostrophe precedes a text that a spreadsheet would treat as a formula, unless `raw`. `wide` cuts no cell
    on a terminal, `pager` allows a pager there.
    """

    def __init__(
        self,
        output_format: str = "text",
        file: str | None = None,
        *,
        raw: bool = False,
        wide: bool = False,
        pager: bool = True,
        chosen: Chosen | None = None,
    ) -> None:
        self.output_format = output_format
        self.file = file
        self.pager = pager
        self.chosen = chosen or Chosen()
        self._raw = raw
        self._wide = wide

    @property
    def is_text(self) -> bool:
        """Tell whether the format is text, for people."""
        return self.output_format == "text"

    def clear(self) -> None:
        """Clear the terminal before a repeated answer, if the answer goes to one."""
        if self.file is None and terminal() is not None:
            click.clear()

    def table(
        self, columns: Sequence[Column], rows: Iterable[Row], *, order: str | None = None, closing: Closing = None
    ) -> None:
        """Print one table, sorted by `order` unless by `--sort`. Raise UsageError if the file cannot be written.

        The format text may iterate over the rows twice. `closing` is a sentence, or a function that returns one after
        the last row. It follows the table in text; for JSON and CSV it goes to stderr.
        """
        rows, left_out = self.chosen.rows(columns, rows, order)
        names = [column.name for column in columns]
        if self.is_text:
            lines = chain(text_lines(Block(columns, rows), self._window()), _closing_lines(closing))
            self._write(chain(lines, [f"--limit leaves out {left_out} rows.\n"] if left_out else []))
            return
        writers = {"json": partial(_json, names), "csv": partial(_csv, names, raw=self._raw)}
        self._write(writers[self.output_format](rows))
        for line in _closing_lines(closing):
            click.echo(line, err=True, nl=False)

    def blocks(self, blocks: Iterable[Blocks], *, closing: Closing = None) -> None:
        """Print the blocks as text, each after an empty line, then the closing sentence.

        With `--sort` or `--limit`, print one table of all rows. Raise UsageError if the file cannot be written.
        """
        if self.chosen:
            each = [block for some in blocks for block in some.each()]
            self.table(all_columns(each), [row for block in each for row in block.rows], closing=closing)
            return
        window = self._window()
        lines = chain.from_iterable(lines_of_blocks(some, window) for some in blocks)
        self._write(chain(lines, _closing_lines(closing)))

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines for a person. Raise UsageError if the file cannot be written."""
        self._write("".join(f"{printable(line)}\n" for line in lines))

    def pieces(self, texts: Iterable[str]) -> None:
        """Print texts unchanged, in a format of another tool. Raise UsageError if the file cannot be written."""
        self._write(texts)

    def require_writable(self) -> None:
        """Raise before a change whose result could not be printed: UsageError for a file, else OffsetstreamError."""
        if self.file is None:
            require_stdout()
            return
        try:
            with Path(self.file).open("ab"):
                pass
        except (OSError, ValueError) as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError | ValueError) -> OffsetstreamError:
        reason = error.strerror if isinstance(error, OSError) else error
        if isinstance(error, OSError) and error.errno in _FULL:
            return OffsetstreamError(f"cannot write {self.file}: {reason}")
        return UsageError(f"cannot write {self.file}: {reason}. Name another file by --file")

    def _window(self) -> Terminal | None:
        window = terminal() if self.file is None and self.is_text else None
        return Terminal(None, window.lines, window.has_color) if window is not None and self._wide else window

    def _write(self, texts: Iterable[str]) -> None:
        """Write the texts as they come: they may exceed memory."""
        if self.file is None and self.pager and (window := self._window()) is not None:
            texts = iter(texts)
            start = list(_until_full(texts, window.lines))
            if sum(text.count("\n") for text in start) >= window.lines and _page(chain(start, texts)):
                return
            texts = chain(start, texts)
        pieces = _pieces(texts)
        first = next(pieces, b"")  # before the file is opened: reading the rows may fail
        if self.file is None:
            require_stdout()
            for piece in chain([first], pieces):
                click.echo(piece, nl=False)
            return
        try:
            with Path(self.file).open("wb") as file:
                file.write(first)
                file.writelines(pieces)
        except (OSError, ValueError) as error:
            raise self._unwritable(error) from error


def _until_full(texts: Iterator[str], lines: int) -> Iterator[str]:
    for text in texts:
        yield text
        lines -= text.count("\n")
        if lines <= 0:
            return


def _page(texts: Iterable[str]) -> bool:
    """Show the texts in the pager that OFFSETSTREAM_PAGER or PAGER names; return False if the user wants none.

    As git does: less quits where all fits one screen, keeps colours, and leaves the text on the screen (FRX).
    """
    named = os.environ.get("OFFSETSTREAM_PAGER", os.environ.get("PAGER"))
    if named is not None and (named.strip() in {"", "cat"} or not _is_command(named)):
        return False
    with _variables({"PAGER": named, "LESS": os.environ.get("LESS", "FRX")}):
        click.echo_via_pager(text.encode("utf-8", "backslashreplace").decode() for text in texts)
    return True


def _is_command(text: str) -> bool:
    with suppress(ValueError):  # an open quote
        return bool(shlex.split(text))
    return False


@contextmanager
def _variables(values: Mapping[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    try:
        _set(values)
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _pieces(texts: Iterable[str]) -> Iterator[bytes]:
    """Join the texts to pieces that are large enough for a write."""
    for some in in_parts(texts, _PIECE, len):
        yield "".join(some).encode("utf-8", "backslashreplace")


def require_stdout() -> None:
    """Raise OffsetstreamError if standard output is closed: the answer would be lost silently."""
    if sys.stdout is None:
        raise OffsetstreamError("standard output is closed: keep it open, or redirect it to a file")


def all_columns(blocks: Iterable[Block]) -> list[Column]:
    """Return all columns, in the order of the block with the most. A column is in text if any block shows it."""
    columns: dict[str, Column] = {}
    longest_first = sorted(blocks, key=lambda block: -len(block.columns))
    for column in chain.from_iterable(block.columns for block in longest_first):
        known = columns.get(column.name)
        columns[column.name] = column if known is None or known.heading is None else known
    return list(columns.values())


def _closing_lines(closing: Closing) -> Iterator[str]:
    sentence = closing() if callable(closing) else closing
    if sentence is not None:
        yield f"{printable(sentence)}\n"


def _by_column(names: Sequence[str], rows: Iterable[Row]) -> Iterator[list[Sequence[Any]]]:
    """Yield the values of some rows at a time, by column: handling one column at a time is fast."""
    if isinstance(rows, RereadParts):
        yield from ([part[name] for name in names] for part in rows.parts())
        return
    remaining = iter(rows)
    while part := list(islice(remaining, ROWS_PER_PART)):
        yield [[row.get(name) for row in part] for name in names]


# Text, in the layout of Kafka's own tools (reference 8.4).

_Cells = Sequence[list[str]]  # by column


def text_lines(block: Block, window: Terminal | None = None) -> Iterator[str]:
    """Yield the heading, then the rows in chunks of lines."""
    columns = [column for column in block.columns if column.heading is not None]
    names = [column.name for column in columns]

    def parts() -> Iterator[_Cells]:
        return (_cells(columns, values, window) for values in _by_column(names, block.rows))

    # Rows in memory become text once. Others do twice: for the widths of columns, then to print them.
    texts = parts if isinstance(block.rows, RereadRows) else partial(iter, list(parts()))
    widths = _least_widths(columns, window)
    for part in texts():
        widths = [*chain(*map(partial(_widths, [len(part[0])]), widths, part))]
    layout = _layout(columns, tuple(widths), window)
    yield layout.heading
    for part in texts():
        yield layout.lines(zip(*part, strict=True))


def lines_of_blocks(blocks: Blocks, window: Terminal | None = None) -> Iterator[str]:
    """Yield each block after an empty line."""
    columns = tuple(column for column in blocks.columns if column.heading is not None)
    cells = _cells(columns, [blocks.values[column.name] for column in columns], window)
    widths_by_block = zip(*map(partial(_widths, blocks.sizes), _least_widths(columns, window), cells), strict=True)
    rows, layouts = zip(*cells, strict=True), dict[tuple[int, ...], _Layout]()  # many blocks are alike
    for size, widths in zip(blocks.sizes, widths_by_block, strict=True):
        layout = layouts.get(widths) or layouts.setdefault(widths, _layout(columns, widths, window))
        yield f"\n{layout.heading}{layout.lines(islice(rows, size))}"


def _cells(columns: Sequence[Column], values: Sequence[Sequence[Any]], window: Terminal | None) -> _Cells:
    return [_text_cells(_for_window(column, each, window)) for column, each in zip(columns, values, strict=True)]


def _for_window(column: Column, values: Sequence[Any], window: Terminal | None) -> Sequence[Any]:
    """Return the values as a terminal shows them: with thousands separators, and short member ids."""
    if window is None:
        return values
    if column.unit == "number":
        return [f"{value:,}" if isinstance(value, int) else value for value in values]
    return short_ids(values) if column.unit == "member" and window.columns is not None else values


_UUID = re.compile(r".*?([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[\w-]{22})", re.DOTALL)
_SHORT = 8  # characters of a member's UUID


def short_ids(ids: Sequence[Any]) -> Sequence[Any]:
    """Return member ids as short as they differ: of each, the start of the UUID that it ends with."""
    found = {each: match[1] for each in ids if isinstance(each, str) and (match := _UUID.fullmatch(each))}
    length = _SHORT
    while len({uuid[:length] for uuid in found.values()}) < len(set(found.values())):
        length += 1
    return [f"{found[each][:length]}…" if each in found else each for each in ids]


def _widths(sizes: Sequence[int], least: int, cells: list[str]) -> list[int]:
    """Return the width of a column in each block."""
    lengths = list(map(len, cells))
    if max(lengths, default=0) <= least:
        return [least] * len(sizes)
    shown = iter([length if length <= _WIDEST else 0 for length in lengths])
    return [max(chain((least,), islice(shown, size))) for size in sizes]


def _least_widths(columns: Iterable[Column], window: Terminal | None) -> list[int]:
    """Return the least widths: those of Kafka's tool, but on a terminal, where space is short, of the cells alone."""
    return [max(column.width, len(str(column.heading))) if window is None else 1 for column in columns]


@dataclass(frozen=True)
class _Layout:
    heading: str
    lines: Callable[[Iterable[Sequence[str]]], str]


def _layout(columns: Sequence[Column], widths: tuple[int, ...], window: Terminal | None) -> _Layout:
    """Return the heading line, and a function that formats rows of cells as lines."""
    headings = [str(column.heading) for column in columns]
    if window is not None:
        widths, headings = _fitting(columns, widths, headings, window)
    aligned = [f"{{:{'>' if column.is_right else '<'}{width}}}" for column, width in zip(columns, widths, strict=True)]
    heading = _lines(" ".join(aligned).format, [headings])
    levels = {each for each in columns if each.unit == "level" and window and window.has_color}
    line = " ".join("{}" if column in levels else each for column, each in zip(columns, aligned, strict=True)).format

    def cut_lines(rows: Iterable[Sequence[str]]) -> str:
        parts = zip(columns, list(zip(*rows, strict=True)) or [()] * len(columns), widths, strict=True)
        cells = [
            _colored(each, width) if column in levels else _cut(each, width, window, column.unit)
            for column, each, width in parts
        ]
        return _lines(line, zip(*cells, strict=True))

    return _Layout(heading, partial(_lines, line) if window is None else cut_lines)


def _lines(line: Callable[..., str], rows: Iterable[Sequence[str]]) -> str:
    return "".join([text.rstrip(" ") + "\n" for text in starmap(line, rows)])


_COLORS = {"OK": "green", "WARN": "yellow", "ERR": "red"}
_READABLE, _LEAST = 16, 4  # characters that a cut text keeps, if possible and at least


def _fitting(
    columns: Sequence[Column], cells: Sequence[int], headings: Sequence[str], window: Terminal
) -> tuple[tuple[int, ...], list[str]]:
    """Return widths with which a line fits into the window, and headings cut to them.

    Long texts are cut first, the widest first, then the headings of numbers, then all texts, the first column last.
    Numbers and times are never cut.
    """
    widths = [max(each) for each in zip(cells, map(len, headings), strict=True)]
    if window.columns is None:
        return tuple(widths), list(headings)
    texts = [number for number, column in enumerate(columns) if column.unit in {"text", "member"}]
    readable = [max(_READABLE, len(heading)) for heading in headings]
    shortest = [_LEAST if number in texts else max(_LEAST, cell) for number, cell in enumerate(cells)]
    others = [number for number in range(len(columns)) if number not in texts]
    for wanted, least in ((texts, readable), (others, shortest), (texts[1:], shortest), (texts, shortest)):
        while sum(widths) + len(widths) - 1 > window.columns:
            wide = [number for number in wanted if widths[number] > least[number]]
            if not wide:
                break
            widths[max(wide, key=lambda number: widths[number])] -= 1
    return tuple(widths), [_cut([heading], width, window)[0] for heading, width in zip(headings, widths, strict=True)]


def _cut(cells: Sequence[str], width: int, window: Terminal | None, unit: Unit = "text") -> Sequence[str]:
    """Return the cells cut to the width: of a member id, its end is what tells it apart."""
    if window is None or window.columns is None:
        return cells
    if unit == "member":
        return [cell if len(cell) <= width else f"…{cell[1 - width :]}" for cell in cells]
    return [cell if len(cell) <= width else f"{cell[: width - 1]}…" for cell in cells]


def _colored(cells: Sequence[str], width: int) -> list[str]:
    padded = ((cell, f"{cell:<{width}}") for cell in cells)
    return [click.style(text, fg=_COLORS[cell]) if cell in _COLORS else text for cell, text in padded]


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


# JSON and CSV.

_PLAIN = r"[^\x00-\x1f\x7f\",]+"
_PLAIN_CSV = re.compile(_PLAIN)
# Characters at the start of a cell that make it a formula in spreadsheets (OWASP's list). A plain number is no formula.
_FORMULA_MARK = r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
_FORMULA = re.compile(rf"(?!-?\d+(?:\.\d+)?\Z){_FORMULA_MARK}")
_USUAL_CSV = re.compile(f"(?!{_FORMULA_MARK}){_PLAIN}")
_BOOLEANS = {True: "true", False: "false"}


def _json(names: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    encode, before = json.JSONEncoder(ensure_ascii=False).encode, "["
    for row in rows:
        text = encode({name: row.get(name) for name in names})
        yield f"{before}\n  {without_controls(text)}"
        before = ","
    yield "[]\n" if before == "[" else "\n]\n"


def _csv(names: Sequence[str], rows: Iterable[Row], *, raw: bool) -> Iterator[str]:
    yield ",".join(_csv_fields(names, raw=raw)) + "\r\n"
    for columns in _by_column(names, rows):
        fields = [_csv_fields(values, raw=raw) for values in columns]
        yield "".join([",".join(line) + "\r\n" for line in zip(*fields, strict=True)])


def _csv_fields(values: Sequence[Any], *, raw: bool) -> list[str]:
    """Return the fields of a column. Equal texts are converted once; common values need no function call."""
    usual = _USUAL_CSV.fullmatch
    texts = {
        text: text if usual(text) else _csv_field(text, raw=raw)
        for text in {value for value in values if type(value) is str}
    }
    return [
        texts[value]
        if type(value) is str
        else ""
        if value is None
        else _BOOLEANS[value]
        if type(value) is bool
        else str(value)
        if type(value) is int
        else _csv_field(value, raw=raw)
        for value in values
    ]


def _csv_field(value: Any, *, raw: bool) -> str:
    """Return the field of a value that is not null. An empty field is null; a quoted empty field is the empty text."""
    if not isinstance(value, str):
        return text_cell(value)
    text: str = f"'{value}" if not raw and _FORMULA.match(value) else value
    return text if _PLAIN_CSV.fullmatch(text) else '"' + text.replace('"', '""') + '"'
