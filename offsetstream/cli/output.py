"""What a command prints: tables as text in Kafka's layout (reference 8.4), as JSON or as CSV (RFC 4180)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from offsetstream.errors import UsageError

Row = Mapping[str, Any]

_MISSING = "-"
_PLAIN_CSV = re.compile(r"[^\x00-\x1f\x7f\",]+")
# What JSON may hold as it is, but ends a line or moves the cursor for some who read it.
_UNSAFE_JSON = re.compile("[\x7f-\x9f\u2028\u2029]")
# A longer cell stands out of its column: padding all others to 32,767 characters would make gigabytes of spaces.
_WIDEST = 250


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
    rows: Sequence[Row] = field(default_factory=list)


class Output:
    """Prints to stdout, or to ``file``; ``output_format`` is text, json or csv. All of it is UTF-8."""

    def __init__(self, output_format: str = "text", file: str | None = None) -> None:
        self.output_format = output_format
        self.file = file

    @property
    def is_text(self) -> bool:
        """Whether a person reads it."""
        return self.output_format == "text"

    def table(self, columns: Sequence[Column], rows: Sequence[Row]) -> None:
        """Print one table. UsageError if the file cannot be written."""
        names = [column.name for column in columns]
        if self.is_text:
            self._write("".join(_text_lines(Block(columns, rows))))
        else:
            self._write_rows(names, rows)

    def blocks(self, names: Sequence[str], rows: Sequence[Row], blocks: Iterable[Block]) -> None:
        """Print the blocks as text, each after an empty line; or the rows' columns ``names`` as JSON or CSV.

        UsageError if the file cannot be written.
        """
        if self.is_text:
            self._write("".join("\n" + "".join(_text_lines(block)) for block in blocks))
        else:
            self._write_rows(names, rows)

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines for a person. UsageError if the file cannot be written."""
        self._write("".join(f"{printable(line)}\n" for line in lines))

    def _write_rows(self, names: Sequence[str], rows: Sequence[Row]) -> None:
        self._write(_json(names, rows) if self.output_format == "json" else _csv(names, rows))

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        if self.file is None:
            click.echo(data, nl=False)
            return
        try:
            Path(self.file).write_bytes(data)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"cannot write {self.file}: {reason}; name another file by --file") from error


def printable(text: str) -> str:
    """Return the text with what would move the cursor, or not be seen, as Python writes it: an id may hold anything."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def tell(line: str, *, err: bool = True) -> None:
    """Write a line for a person, to stderr or to stdout."""
    click.echo(printable(line), err=err)


def _text_lines(block: Block) -> Iterable[str]:
    columns = [column for column in block.columns if column.heading is not None]
    lines = [[str(column.heading) for column in columns]]
    lines += [[_text_cell(row.get(column.name)) for column in columns] for row in block.rows]
    lengths = ((len(line[at]) for line in lines) for at in range(len(columns)))
    widths = [
        max(column.width, *(length for length in of_column if length <= _WIDEST))
        for column, of_column in zip(columns, lengths, strict=True)
    ]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        yield " ".join(cells).rstrip(" ") + "\n"


def _text_cell(value: Any) -> str:
    if value is None:
        return _MISSING
    if isinstance(value, bool):
        return str(value).lower()
    return printable(str(value))


def _json(names: Sequence[str], rows: Sequence[Row]) -> str:
    objects = (json.dumps({name: row.get(name) for name in names}, ensure_ascii=False) for row in rows)
    text = _UNSAFE_JSON.sub(lambda found: f"\\u{ord(found.group()):04x}", ",\n  ".join(objects))
    return f"[\n  {text}\n]\n" if text else "[]\n"


def _csv(names: Sequence[str], rows: Sequence[Row]) -> str:
    lines = [",".join(names)]
    lines += [",".join(_csv_field(row.get(name)) for name in names) for row in rows]
    return "".join(f"{line}\r\n" for line in lines)


def _csv_field(value: Any) -> str:
    """Nothing is null, and a quoted nothing is the empty text."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return _text_cell(value)
    return value if _PLAIN_CSV.fullmatch(value) else '"' + value.replace('"', '""') + '"'
