"""`offsetstream decode`: raw lines of records to Kafka's JSON, or to what its console consumer prints."""

from __future__ import annotations

from collections.abc import Callable

import click

from offsetstream.cli.line_files import convert_lines, file_option, input_argument
from offsetstream.cli.tell import tell
from offsetstream.codec.kafka_text import kafka_json, kafka_text
from offsetstream.codec.lines import decode_line, parse_raw_line
from offsetstream.codec.wire import DecodeError

_FORMATTERS: dict[str, tuple[Callable[[bytes | None, bytes | None], str | None], str]] = {
    "kafka": (kafka_json, "\n"),
    "kafka-text": (kafka_text, ""),  # its lines have their newline
}


@click.command(
    epilog="""\b
Examples:
  offsetstream decode records.jsonl
  offsetstream dump --bootstrap-server localhost:9092 --format records | offsetstream decode
  offsetstream decode --format kafka-text records.jsonl

Exit code 0 also where records cannot be decoded: in JSON such a line has an "error", and its bytes. Kafka's own
formats have no place for an error: there it goes to stderr, and the exit code is 1."""
)
@input_argument
@click.option(
    "--format",
    "line_format",
    type=click.Choice(["json", *_FORMATTERS]),
    default="json",
    show_default=True,
    help="JSON, or what Kafka's console consumer prints of offsets and classic groups: 4.x (kafka), 2.1-3.9 (-text).",
)
@file_option
def decode(input_file: str, line_format: str, output_file: str | None) -> None:
    """Decode records of __consumer_offsets from lines of JSON.

    A line in is {"key": base64 or null, "value": base64 or null}; further fields pass through. A line out, for each
    line in, has what Kafka's JSON converters print of key and value, null for a tombstone.
    """
    if line_format == "json":
        convert_lines(input_file, output_file, lambda line: decode_line(line) + "\n")
        return
    formatter = _Formatter(*_FORMATTERS[line_format])
    convert_lines(input_file, output_file, formatter, as_kafka=True)
    if formatter.failed:
        click.get_current_context().exit(1)


class _Formatter:
    """One of Kafka's formats for lines, and whether any line failed."""

    def __init__(self, print_record: Callable[[bytes | None, bytes | None], str | None], end: str) -> None:
        self._print_record, self._end = print_record, end
        self._number, self.failed = 0, False

    def __call__(self, line: str) -> str | None:
        """Print a line; None for a record that Kafka skips, and for one that is broken, which stderr tells."""
        self._number += 1
        try:
            key, value, _ = parse_raw_line(line)
            printed = self._print_record(key, value)
        except (DecodeError, RecursionError) as reason:
            self.failed = True
            tell(f"Error: line {self._number}: {reason}")
            return None
        return None if printed is None else printed + self._end
