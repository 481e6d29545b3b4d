"""`offsetstream decode`: convert raw records to Kafka's JSON, or to the output of Kafka's console consumer."""

from __future__ import annotations

from collections.abc import Callable

import click

from offsetstream.cli.line_files import convert_lines, file_option, input_argument
from offsetstream.cli.messages import print_line
from offsetstream.codec.kafka_text import kafka_json, kafka_text
from offsetstream.codec.lines import decode_line, parse_raw_line
from offsetstream.codec.wire import DecodeError

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
