"""`offsetstream encode`: convert decoded records back to bytes, the inverse of `offsetstream decode`."""

from __future__ import annotations

import click

from offsetstream.cli.line_files import convert_lines, file_option, input_argument
from offsetstream.codec.lines import encode_line
from offsetstream.codec.records import FIRST_RELEASE, LAST_RELEASE, parse_release


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
