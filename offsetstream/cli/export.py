"""`offsetstream offsets export`: offsets of any instant as Kafka's own tool takes them (reference 8.5)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

import click

from offsetstream.cli.answers import Row, at_option, counted, reader_of, rows_of, table_of, topic_options
from offsetstream.cli.main import OneLineErrors
from offsetstream.cli.missing import missing_of, not_there, unknown_text
from offsetstream.cli.options import config_option, tables_option
from offsetstream.cli.output import Output, tell
from offsetstream.cli.times import instant_text
from offsetstream.errors import UsageError

_LONGEST_PLAIN = 24  # Jackson looks no further into a text, and quotes it


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream offsets export --group my-group --at 03:00 --file offsets.csv
  kafka-consumer-groups --bootstrap-server HOST:9092 --group my-group --reset-offsets --from-file offsets.csv --execute
  offsetstream offsets export --all-groups --at 10m --file offsets.csv

Kafka's tool resets a group only while it has no member. Exit code 1 where a group had no offset.""",
)
@config_option("offsets.export")
@click.option("--group", multiple=True, metavar="GROUP", help="A group; repeatable.")
@click.option("--all-groups", is_flag=True, help="All groups.")
@topic_options
@at_option
@tables_option
@click.option("--file", "output_file", metavar="FILE", help="Write to this file, not to stdout.")
def export(
    *,
    group: tuple[str, ...],
    all_groups: bool,
    topic: tuple[str, ...],
    at: datetime | None,
    tables: str,
    output_file: str | None,
) -> None:
    """Write committed offsets, of now or of an instant, for kafka-consumer-groups --reset-offsets --from-file.

    As Kafka's --export does: topic,partition,offset for one --group, else group,topic,partition,offset; no heading.
    """
    if bool(group) == all_groups:
        raise click.UsageError("give --group, or --all-groups")
    reader = reader_of(tables, at, group)
    rows = _rows(reader, group, topic)
    found = {row["group_id"] for row in rows}
    missing = missing_of(reader, rows, group, at=at) or [
        f"group '{name}' had no such offset" for name in sorted(set(group) - found)
    ]
    missing += not_there(reader, "topic", topic, {row["topic"] for row in rows})
    if not missing:
        Output(file=output_file).pieces(_lines(rows, with_group=len(group) != 1))
        of_groups = f"{counted(len(rows), 'offset')} of {counted(len(found), 'group')}"
        tell(f"{of_groups} as of {instant_text(at or datetime.now(UTC))}.{unknown_text(reader)}")
    for message in missing:
        tell(f"Error: {message}")
    click.get_current_context().exit(1 if missing else 0)


def _rows(reader: Any, group: tuple[str, ...], topic: tuple[str, ...]) -> list[Row]:
    found = rows_of(table_of(reader, "committed_offsets", {"group_id": group, "topic": topic}))
    there = [row for row in found if row["in_coordinator_partition"] and row["committed_offset"] >= 0]
    return sorted(there, key=itemgetter("group_id", "topic", "partition"))


def _lines(rows: list[Row], *, with_group: bool) -> Iterator[str]:
    for row in rows:
        group = f"{_field(row['group_id'])}," if with_group else ""
        yield f"{group}{_field(row['topic'])},{row['partition']},{row['committed_offset']}\n"


def _field(text: str) -> str:
    """Return the text as Jackson writes it; UsageError where Kafka's tool could not read it back."""
    if "\n" in text:
        raise UsageError(f"Kafka's tool reads a file line by line, and cannot take the name {text!r}: leave it out")
    if len(text) <= _LONGEST_PLAIN and text and all(character >= "-" for character in text):
        return text
    return '"' + text.replace('"', '""') + '"'
