"""`offsetstream peek`: the next records that a group would read, or records of a partition."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.failures import OneLineErrors
from offsetstream.cli.options import (
    UNREACHABLE,
    client_properties,
    cluster_options,
    is_unreachable,
    isolation_option,
    no_record_reason,
    output_of,
    reading_timeout_option,
    require_server,
    row_options,
)
from offsetstream.cli.output import Column
from offsetstream.cli.settings_file import config_option
from offsetstream.cli.text import Instant, counted, milliseconds, print_line, time_text
from offsetstream.cluster.answers import no_offset
from offsetstream.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from offsetstream.cluster.reading import Peek, Reading
    from offsetstream.cluster.records import Record

_COLUMNS = (
    Column("topic", "TOPIC", 10),
    Column("partition", "PARTITION", 0, "id"),
    Column("offset", "OFFSET", 8, "id"),
    Column("timestamp", "TIMESTAMP", 24),
    Column("key_size", "KEY-SIZE", 0, "number"),
    Column("value_size", "VALUE-SIZE", 0, "number"),
    Column("key", "KEY", 10),
    Column("headers", "HEADERS"),
    Column("timestamp_ms"),
    Column("timestamp_type"),
    Column("leader_epoch"),
    Column("key_encoding"),
)
_VALUES = (Column("value", "VALUE"), Column("value_encoding"))
Place = tuple[str, int]


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream peek --group my-group --bootstrap-server localhost:9092
  offsetstream peek --group my-group --topic orders --partition 0 --max-records 1 --values
  offsetstream peek --topic orders --partition 0 --offset 1234 --values --output json
  offsetstream peek --topic orders --partition 0 --at 03:00
  offsetstream peek --topic orders --partition 0 --latest

peek commits nothing and joins no group. Bytes that are not UTF-8 appear in base64 (base64:AP8=; JSON and CSV have
key_encoding and value_encoding). Text shows the first 200 characters of a key or value.

Exit codes: 1 an offset is not in the log (the error says the log's range), or there is nothing to read; 3 a partition
does not answer.""",
)
@config_option("peek")
@click.option("--group", metavar="GROUP", help="Read from the committed offsets of this group.")
@click.option("--topic", metavar="TOPIC", help="Read this topic; with --group, only this one.")
@click.option(
    "--partition", type=click.IntRange(min=0), metavar="N", help="Read this partition; with --group, only this one."
)
@click.option("--offset", type=click.IntRange(min=0), metavar="N", help="Read from this offset.")
@click.option(
    "--at", type=Instant(), metavar="TIME", help="Read from the first record of this time or later: 10m (ago), 03:00."
)
@click.option("--latest", is_flag=True, help="Read the last records of the log.")
@click.option(
    "--max-records",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Read at most this many per partition.",
)
@click.option("--values", "with_values", is_flag=True, help="Show values, not only their sizes.")
@isolation_option
@reading_timeout_option
@cluster_options
@row_options
def peek(
    *,
    group: str | None,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    at: datetime | None,
    latest: bool,
    max_records: int,
    with_values: bool,
    isolation_level: Any,
    timeout: float,
    bootstrap_server: str | None,
    command_config: str | None,
    **options: Any,
) -> None:
    """Show the next records that a group would read, or records of a partition, from the live cluster."""
    output = output_of(options)
    _require_one_way(group, topic, partition, [offset, at, latest or None])
    server = require_server(bootstrap_server, "peek")
    from offsetstream.cluster.reading import Peek

    properties = client_properties(command_config)
    peeking = Peek(server, properties, isolation_level, timeout)
    if group is not None:
        starts = _committed(peeking, properties, group, topic, partition)
        readings = _readable(peeking, starts).read(starts, max_records)
    else:
        place = (str(topic), int(partition or 0))
        readings = {place: _read_partition(_readable(peeking, [place]), place, offset, at, max_records)}
    rows = [
        {"topic": place[0], "partition": place[1]}
        | record_row(record, with_values=with_values, output_format=output.output_format)
        for place, reading in sorted(readings.items())
        for record in reading.records
    ]
    columns = (*_COLUMNS, *(_VALUES if with_values else ()))
    output.table(columns, rows, closing=f"{counted(len(rows), 'record')} of {counted(len(readings), 'partition')}.")
    click.get_current_context().exit(_report_ends(readings))


def _require_one_way(group: str | None, topic: str | None, partition: int | None, places: list[Any]) -> None:
    given = sum(place is not None for place in places)
    if given + (group is not None) != 1:
        raise UsageError("give exactly one of --group, --offset, --at and --latest")
    if group is None and (topic is None or partition is None):
        raise UsageError("--offset, --at and --latest need one partition: name it by --topic and --partition")


def _committed(
    peeking: Peek, properties: Mapping[str, str], group: str, topic: str | None, partition: int | None
) -> dict[Place, int]:
    from offsetstream.cluster.client import require_to_see_topics_of_groups
    from offsetstream.cluster.offsets import GroupOffsets

    require_to_see_topics_of_groups(peeking.cluster, [topic] if topic else [])
    offsets = GroupOffsets(peeking.cluster.bootstrap_server, properties).fetch(group)
    starts = dict[Place, int]()
    for place, committed in sorted(offsets.items()):
        if topic not in {None, place[0]} or partition not in {None, place[1]}:
            continue
        if committed.offset is None:
            print_line(f"{place[0]}-{place[1]}: {committed.error or no_offset()}")
        else:
            starts[place] = committed.offset
    if not starts:
        raise UnknownNameError(f"group '{group}' has no such committed offset")
    return starts


def _readable(peeking: Peek, places: Collection[Place]) -> Peek:
    from offsetstream.cluster.client import require_to_read

    require_to_read(peeking.cluster, {topic for topic, _ in places})
    return peeking


def _read_partition(peeking: Peek, place: Place, offset: int | None, at: datetime | None, max_records: int) -> Reading:
    if offset is not None:
        return peeking.read({place: offset}, max_records)[place]
    return peeking.latest(place, max_records) if at is None else peeking.since(place, milliseconds(at), max_records)


def _report_ends(readings: Mapping[Place, Reading]) -> int:
    """Print why partitions give no more records, and return the exit code."""
    code = 0 if any(reading.records for reading in readings.values()) else 1
    for (topic, number), reading in sorted(readings.items()):
        reason = no_record_reason(topic, reading)
        if reason is not None:
            print_line(f"{'Error: ' if reading.error else ''}{topic}-{number}: {reason}")
        elif not reading.records:
            print_line(f"{topic}-{number}: nothing to read from offset {reading.offset}")
        if reading.error:
            code = max(code, UNREACHABLE if is_unreachable(reading.error) else 1)
    return code


_LONGEST = 200  # characters of a cell in text
Row = dict[str, Any]


def record_row(record: Record, *, with_values: bool, output_format: str) -> Row:
    """Return the cells of a record. Without `with_values` they have only the size of the value."""
    is_text = output_format == "text"
    row: Row = {
        "offset": record.offset,
        "timestamp": time_text(record.timestamp_ms),
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
        "leader_epoch": record.leader_epoch,
        "key_size": _size(record.key),
        "value_size": _size(record.value),
        **_cells("key", record.key, is_text=is_text),
        **(_cells("value", record.value, is_text=is_text) if with_values else {}),
    }
    headers = [{"name": name, **_cells("value", value, is_text=False)} for name, value in record.headers]
    if is_text:
        texts = [(each["name"], _marked(each["value"], each["value_encoding"])) for each in headers]
        row["headers"] = _cut(", ".join(name if text is None else f"{name}={text}" for name, text in texts)) or None
    else:
        row["headers"] = headers if output_format == "json" else json.dumps(headers, ensure_ascii=False)
    return row


def _cells(name: str, data: bytes | None, *, is_text: bool) -> Row:
    text, encoding = _decoded(data)
    return {name: _cut(_marked(text, encoding)) if is_text else text, f"{name}_encoding": encoding}


def _decoded(data: bytes | None) -> tuple[str | None, str | None]:
    if data is None:
        return None, None
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return b64encode(data).decode(), "base64"


def _marked(text: str | None, encoding: str | None) -> str | None:
    return f"base64:{text}" if encoding == "base64" else text


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _size(data: bytes | None) -> int | None:
    return None if data is None else len(data)
