"""Print tables as text in Kafka's layout (reference 8.4), as JSON, or as CSV (RFC 4180)."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import click

from offsetstream.cli.messages import printable
from offsetstream.cli.rows import Block, Blocks, Column, Row, by_column
from offsetstream.cli.text_table import lines_of_blocks, text_cell, text_lines
from offsetstream.control_characters import without_controls
from offsetstream.errors import OffsetstreamError, UsageError
from offsetstream.in_parts import in_parts

Closing = str | Callable[[], str | None] | None

_PLAIN = r"[^\x00-\x1f\x7f\",]+"
_PLAIN_CSV = re.compile(_PLAIN)
# Characters at the start of a cell that make it a formula in spreadsheets (OWASP's list). A plain number is no formula.
_FORMULA_MARK = r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
_FORMULA = re.compile(rf"(?!-?\d+(?:\.\d+)?\Z){_FORMULA_MARK}")
_USUAL_CSV = re.compile(f"(?!{_FORMULA_MARK}){_PLAIN}")
_BOOLEANS = {True: "true", False: "false"}
_PIECE = 1 << 16  # characters per write


class Output:
    """Prints UTF-8 to stdout or to `file`. `output_format` is text, json or csv.

    In CSV an apostrophe precedes a text that a spreadsheet would treat as a formula, unless `raw`.
    """

    def __init__(self, output_format: str = "text", file: str | None = None, *, raw: bool = False) -> None:
        self.output_format = output_format
        self.file = file
        self._raw = raw

    @property
    def is_text(self) -> bool:
        """Tell whether the format is text, for people."""
        return self.output_format == "text"

    def table(self, columns: Sequence[Column], rows: Iterable[Row], *, closing: Closing = None) -> None:
        """Print one table. Raise UsageError if the file cannot be written.

        The format text may iterate over the rows twice. `closing` is a sentence, or a function that returns one after
        the last row. It follows the table in text; for JSON and CSV it goes to stderr.
        """
        names = [column.name for column in columns]
        if self.is_text:
            self._write(chain(text_lines(Block(columns, rows)), _closing_lines(closing)))
            return
        writers = {"json": partial(_json, names), "csv": partial(_csv, names, raw=self._raw)}
        self._write(writers[self.output_format](rows))
        for line in _closing_lines(closing):
            click.echo(line, err=True, nl=False)

    def blocks(self, blocks: Iterable[Blocks], *, closing: Closing = None) -> None:
        """Print the blocks as text, each after an empty line, then the closing sentence.

        Raise UsageError if the file cannot be written.
        """
        self._write(chain(chain.from_iterable(map(lines_of_blocks, blocks)), _closing_lines(closing)))

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

    def _unwritable(self, error: OSError | ValueError) -> UsageError:
        reason = error.strerror if isinstance(error, OSError) else error
        return UsageError(f"cannot write {self.file}: {reason}. Name another file by --file")

    def _write(self, texts: Iterable[str]) -> None:
        """Write the texts as they come: they may exceed memory."""
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


def _pieces(texts: Iterable[str]) -> Iterator[bytes]:
    """Join the texts to pieces that are large enough for a write."""
    for some in in_parts(texts, _PIECE, len):
        yield "".join(some).encode("utf-8", "backslashreplace")


def require_stdout() -> None:
    """Raise OffsetstreamError if standard output is closed: the answer would be lost silently."""
    if sys.stdout is None:
        raise OffsetstreamError("standard output is closed: keep it open, or redirect it to a file")


def _closing_lines(closing: Closing) -> Iterator[str]:
    sentence = closing() if callable(closing) else closing
    if sentence is not None:
        yield f"{printable(sentence)}\n"


def _json(names: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    encode, before = json.JSONEncoder(ensure_ascii=False).encode, "["
    for row in rows:
        text = encode({name: row.get(name) for name in names})
        yield f"{before}\n  {without_controls(text)}"
        before = ","
    yield "[]\n" if before == "[" else "\n]\n"


def _csv(names: Sequence[str], rows: Iterable[Row], *, raw: bool) -> Iterator[str]:
    yield ",".join(names) + "\r\n"
    for columns in by_column(names, rows):
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
