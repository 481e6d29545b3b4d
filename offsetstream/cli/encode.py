"""`offsetstream encode`: the inverse of `offsetstream decode`."""

from __future__ import annotations

import click

from offsetstream.cli.line_files import convert_lines, file_option, input_argument
from offsetstream.codec.lines import encode_line
from offsetstream.codec.releases import FIRST_RELEASE, LAST_RELEASE, parse_release


@click.command(
    epilog="""\b
Examples:
  offsetstream encode decoded.jsonl
  offsetstream decode records.jsonl | offsetstream encode
  offsetstream encode --inter-broker-protocol-version 2.0 decoded.jsonl

Exit code 0 also where records cannot be encoded: such a line has an "error"."""
)
@input_argument
@click.option(
    "--inter-broker-protocol-version",
    "release",
    metavar="VERSION",
    help=f"Write what a broker of this version would, {FIRST_RELEASE} to {LAST_RELEASE} [default: as the line says].",
)
@file_option
def encode(input_file: str, release: str | None, output_file: str | None) -> None:
    """Encode lines of 'offsetstream decode' back into lines with the bytes of key and value in base64.

    One line out for each line in; further fields pass through. A line with an "error" gets its bytes back.
    """
    if release is not None:
        parse_release(release)  # before any line is read
    convert_lines(input_file, output_file, lambda line: encode_line(line, release) + "\n")
