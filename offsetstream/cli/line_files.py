"""Read lines of records from a file or stdin, and write them to a file or stdout, one at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from offsetstream.cli.output import require_stdout
from offsetstream.codec.records import jackson
from offsetstream.control_characters import for_terminal, without_controls
from offsetstream.errors import UsageError

Command = Callable[..., None]
STDIO = "-"


def input_argument(command: Command) -> Command:
    """Add the argument `input_file`: a file, or `-` for stdin (the default)."""
    return click.argument("input_file", metavar="[FILE|-]", default=STDIO)(command)


def file_option(command: Command) -> Command:
    """Add `--file`, which `open_output` takes."""
    return click.option("--file", "output_file", metavar="FILE", help="Write to this file (default: stdout).")(command)


def convert_lines(
    input_file: str, output_file: str | None, convert: Callable[[str], str | None], *, as_kafka: bool = False
) -> None:
    """Write the result of `convert` for each input line, without its line end; skip a line if the result is None.

    JSON output has its control characters escaped. Output in Kafka's formats (`as_kafka`) is escaped on a terminal
    only. Lines end with a newline, or a carriage return and a newline. Raises UsageError if a file cannot be opened, or
    if both files are the same.
    """
    if output_file is not None and input_file != STDIO:
        _refuse_same(Path(input_file), Path(output_file))
    with open_input(input_file) as source, open_output(output_file) as target:
        escape = without_controls if not as_kafka else for_terminal if target.isatty() else str
        for line in source:
            # Bytes that are not UTF-8 become lone surrogates, which are written as JSON escapes: \udcff.
            converted = _converted(line.decode("utf-8", "surrogateescape").rstrip("\r\n"), convert)
            if converted is not None:
                target.write(escape(converted).encode("utf-8", "backslashreplace"))
                if target.isatty():
                    target.flush()


@contextmanager
def open_output(path: str | None) -> Iterator[BinaryIO]:
    """Open the file, or stdout; raises if that fails. click handles a pipe that nobody reads."""
    if path is None:
        require_stdout()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with _open(path, "wb", "write", "name another file by --file") as file:
        yield file


@contextmanager
def open_input(path: str) -> Iterator[BinaryIO]:
    """Open the file, or stdin for `-`. Raises UsageError if the file cannot be opened."""
    if path == STDIO:
        yield sys.stdin.buffer
        return
    with _open(path, "rb", "read", "name a file of lines, or - for stdin") as file:
        yield file


def _refuse_same(source: Path, target: Path) -> None:
    if source.is_file() and target.is_file() and source.samefile(target):
        raise UsageError(f"{source} would be overwritten before it is read; name another file by --file")


def _open(path: str, mode: str, verb: str, advice: str) -> BinaryIO:
    try:
        file: BinaryIO = Path(path).open(mode)  # type: ignore[assignment]  # noqa: SIM115 - the caller closes it
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot {verb} {path}: {reason}; {advice}") from error
    return file


def _converted(line: str, convert: Callable[[str], str | None]) -> str | None:
    try:
        return convert(line)
    except RecursionError:
        return jackson({"error": "the line is nested too deeply", "line": line}) + "\n"
