"""`offsetstream decode` and `encode`: lines of records from a file or stdin to a file or stdout, one at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from offsetstream.cli.output import require_stdout
from offsetstream.cli.text import print_line
from offsetstream.codec.kafka_text import kafka_json, kafka_text
from offsetstream.codec.lines import decode_line, encode_line, parse_raw_line
from offsetstream.codec.records import FIRST_RELEASE, LAST_RELEASE, jackson, parse_release
from offsetstream.codec.wire import DecodeError
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


_FORMATTERS: dict[str, tuple[Callable[[bytes | None, bytes | None], str | None], str]] = {
    "kafka": (kafka_json, "\n"),
    "kafka-text": (kafka_text, ""),  # each line already ends with a newline
}


@click.command(
    epilog="""\b
Examples:
  offsetstream decode records.jsonl
  offsetstream dump --bootstrap-server localhost:9092 --format records | offsetstream decode
  offsetstream decode --format kafka-text records.jsonl

A record that cannot be decoded: in JSON its line has an "error" and the bytes, and the exit code stays 0. Kafka's own
formats have no place for errors, so they go to stderr, and the exit code is 1."""
)
@input_argument
@click.option(
    "--format",
    "line_format",
    type=click.Choice(["json", *_FORMATTERS]),
    default="json",
    show_default=True,
    help="Print JSON, or what the console consumer of Kafka 4.x (kafka) or 2.1-3.9 (kafka-text) prints.",
)
@file_option
def decode(input_file: str, line_format: str, output_file: str | None) -> None:
    """Decode records of __consumer_offsets from lines of JSON.

    Each input line is {"key": base64 or null, "value": base64 or null}. Each output line has key and value as Kafka's
    JSON converters print them; the value of a tombstone is null. Other fields stay as they are.
    """
    if line_format == "json":
        convert_lines(input_file, output_file, lambda line: decode_line(line) + "\n")
        return
    formatter = _Formatter(*_FORMATTERS[line_format])
    convert_lines(input_file, output_file, formatter, as_kafka=True)
    if formatter.failed:
        click.get_current_context().exit(1)


class _Formatter:
    """Prints lines in one of Kafka's formats, and remembers whether any line failed."""

    def __init__(self, print_record: Callable[[bytes | None, bytes | None], str | None], end: str) -> None:
        self._print_record, self._end = print_record, end
        self._number, self.failed = 0, False

    def __call__(self, line: str) -> str | None:
        """Return the printed line; None for a record that Kafka skips, or that is broken (reported on stderr)."""
        self._number += 1
        try:
            key, value, _ = parse_raw_line(line)
            printed = self._print_record(key, value)
        except (DecodeError, RecursionError) as reason:
            self.failed = True
            print_line(f"Error: line {self._number}: {reason}")
            return None
        return None if printed is None else printed + self._end


@click.command(
    epilog="""\b
Examples:
  offsetstream encode decoded.jsonl
  offsetstream decode records.jsonl | offsetstream encode
  offsetstream encode --inter-broker-protocol-version 2.0 decoded.jsonl

A record that cannot be encoded: its line has an "error", and the exit code stays 0."""
)
@input_argument
@click.option(
    "--inter-broker-protocol-version",
    "release",
    metavar="VERSION",
    help=f"Encode as a broker of this version, {FIRST_RELEASE} to {LAST_RELEASE} (default: the version in the line).",
)
@file_option
def encode(input_file: str, release: str | None, output_file: str | None) -> None:
    """Encode lines of 'offsetstream decode' into lines with key and value in base64.

    Each input line gives one output line. Other fields stay as they are. A line with an "error" gets its bytes back.
    """
    if release is not None:
        parse_release(release)  # fails before any line is read
    convert_lines(input_file, output_file, lambda line: encode_line(line, release) + "\n")
