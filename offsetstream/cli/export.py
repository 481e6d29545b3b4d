"""`offsetstream offsets export`: committed offsets as Kafka's own tool reads them (reference 8.5)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from operator import itemgetter
from typing import Any

import click

from offsetstream.cli.age import Age
from offsetstream.cli.answers import (
    Row,
    at_option,
    named_group_options,
    open_reader,
    require_groups,
    topic_options,
)
from offsetstream.cli.failures import OneLineErrors
from offsetstream.cli.names import expand, is_pattern, missing_messages, missing_of, unknown_text
from offsetstream.cli.options import client_properties, cluster_options, max_age_option, require_server, tables_option
from offsetstream.cli.output import Output
from offsetstream.cli.settings_file import config_option
from offsetstream.cli.text import counted, print_line, warn
from offsetstream.cluster.answers import omitted
from offsetstream.errors import UsageError
from offsetstream.operations.offset_file import HEADING, csv_lines
from offsetstream.tables.create import require_cluster
from offsetstream.tables.filtered_names import FilteredNames
from offsetstream.tables.location import store_at

_TIMES_SECONDS = 60.0
_LONGEST_PLAIN = 24  # characters: Jackson quotes every longer text


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream offsets export --group my-group --at 03:00 --file offsets.csv
  kafka-consumer-groups --bootstrap-server HOST:9092 --group my-group --reset-offsets --from-file offsets.csv --execute
  offsetstream offsets export --all-groups --at 10m --file offsets.csv
  offsetstream offsets export --all-groups --with-times --bootstrap-server old:9092 --file offsets.csv

The file has no heading. A line is topic,partition,offset for one --group, else group,topic,partition,offset. With
--with-times the first line is group,topic,partition,offset,timestamp_ms,read_again: 'offsets import' reads such a file
on another cluster, and Kafka's tool does not. Kafka's tool resets a group only while it has no member.

Exit code 1: a group had no offset.""",
)
@config_option("offsets.export")
@named_group_options
@topic_options
@at_option
@max_age_option
@click.option(
    "--with-times", is_flag=True, help="Add the time of the record at each offset, read from the live cluster."
)
@cluster_options
@tables_option
@click.option("--file", "output_file", metavar="FILE", help="Write to this file (default: stdout).")
def export(
    *,
    group: tuple[str, ...],
    all_groups: bool,
    topic: tuple[str, ...],
    at: datetime | None,
    max_age: float | None,
    with_times: bool,
    bootstrap_server: str | None,
    command_config: str | None,
    tables: str,
    output_file: str | None,
) -> None:
    """Write committed offsets as 'kafka-consumer-groups --reset-offsets --from-file' reads them."""
    require_groups(group, all_groups)
    store, is_one_id = store_at(tables), len(group) == 1 and not is_pattern(group[0])
    asked, is_past = (set(group), set(topic)), at is not None
    group, topic = expand(store, "group_id", group, past=is_past), expand(store, "topic", topic, past=is_past)
    exact, exact_topics = asked[0] & set(group), asked[1] & set(topic)
    reader = open_reader(tables, at, group, max_age=max_age)
    age = Age.of(reader)
    warn([*([] if at else age.loading_lines(reader.store, group)), *age.warnings_for_groups(reader.store, group)])
    rows = _rows(reader, group, topic)
    found = {row["group_id"] for row in rows}
    missing = missing_of(reader, rows, exact, at=at) or [
        f"group '{name}' had no such offset" for name in sorted(exact - found)
    ]
    missing += missing_messages(reader, "topic", exact_topics, {row["topic"] for row in rows})
    if not missing:
        lines = _lines(rows, with_group=not is_one_id)
        if with_times:
            lines = _timed_lines(reader, rows, at, bootstrap_server, command_config)
        Output(file=output_file, pager=False).pieces(lines)
        exported = f"{counted(len(rows), 'offset')} of {counted(len(found), 'group')}"
        print_line(f"{exported}, {age.as_of_text(reader.store, group)}.{unknown_text(reader)}")
        if note := FilteredNames.of(reader.store).note:
            print_line(f"Note: {note}.")
    for message in missing:
        print_line(f"Error: {message}")
    click.get_current_context().exit(1 if missing else 0)


def _rows(reader: Any, group: tuple[str, ...], topic: tuple[str, ...]) -> list[Row]:
    found = reader.rows("committed_offsets", {"group_id": group or None, "topic": topic or None})
    current = sorted(
        (row for row in found if row["in_coordinator_partition"]), key=itemgetter("group_id", "topic", "partition")
    )
    for row in current:
        if row["committed_offset"] < 0:
            print_line(omitted(row["group_id"], (row["topic"], row["partition"]), row["committed_offset"]))
    return [row for row in current if row["committed_offset"] >= 0]


def _lines(rows: list[Row], *, with_group: bool) -> Iterator[str]:
    for row in rows:
        group = f"{_field(row['group_id'])}," if with_group else ""
        yield f"{group}{_field(row['topic'])},{row['partition']},{row['committed_offset']}\n"


def _timed_lines(
    reader: Any, rows: list[Row], at: datetime | None, bootstrap_server: str | None, command_config: str | None
) -> Iterator[str]:
    """Yield the lines with the times of the records, read from the live cluster; skip partitions that are deleted."""
    server = require_server(bootstrap_server, "--with-times")
    from offsetstream.cluster.metadata import MetadataCache
    from offsetstream.operations.moves import record_times_of
    from offsetstream.operations.past_offsets import require_same_topics

    properties = client_properties(command_config)
    cluster = MetadataCache(server, properties)
    require_cluster(reader.store, cluster.cluster_id())
    offsets: dict[str, dict[tuple[str, int], int]] = {}
    for row in rows:
        offsets.setdefault(row["group_id"], {})[row["topic"], row["partition"]] = row["committed_offset"]
    require_same_topics(reader.store, cluster, rows, at)
    times, gone = record_times_of(cluster, properties, offsets, _TIMES_SECONDS)
    for topic, partition in sorted(gone):
        print_line(f"{topic}-{partition} does not exist any more: its offsets are skipped")
    yield from csv_lines([HEADING])
    existing = [row for row in rows if (row["topic"], row["partition"]) not in gone]
    yield from csv_lines(
        (row["group_id"], row["topic"], row["partition"], row["committed_offset"], timed.since_ms, timed.read_again)
        for row in existing
        for timed in [times[(row["topic"], row["partition"]), row["committed_offset"]]]
    )


def _field(text: str) -> str:
    """Return the text as Jackson writes it. Raises UsageError if Kafka's tool could not read it back."""
    if "\n" in text:
        raise UsageError(f"Kafka's tool reads a file line by line and cannot read the name {text!r}: export without it")
    if len(text) <= _LONGEST_PLAIN and text and all(character >= "-" for character in text):
        return text
    return '"' + text.replace('"', '""') + '"'
