"""`offsetstream peek`: the next records that a group would read, or of a partition, to see what is in the way."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.answers import counted
from offsetstream.cli.live_options import (
    UNREACHABLE,
    is_unreachable,
    isolation_option,
    reading_timeout_option,
    told_nothing,
)
from offsetstream.cli.main import OneLineErrors
from offsetstream.cli.options import client_properties, cluster_options, config_option, output_of, output_options
from offsetstream.cli.record_text import record_row
from offsetstream.cli.rows import Column
from offsetstream.cli.tell import tell
from offsetstream.cli.times import Instant, milliseconds
from offsetstream.errors import UsageError

if TYPE_CHECKING:
    from offsetstream.cluster.peeking import Peek
    from offsetstream.cluster.reading import Reading

_COLUMNS = (
    Column("topic", "TOPIC", 10),
    Column("partition", "PARTITION"),
    Column("offset", "OFFSET", 8),
    Column("timestamp", "TIMESTAMP", 24),
    Column("key_size", "KEY-SIZE"),
    Column("value_size", "VALUE-SIZE"),
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

Bytes that are not UTF-8 are in base64: base64:AP8=, in JSON and CSV with key_encoding and value_encoding. Text is cut
after 200 characters. Nothing is committed, and no group is joined; an offset outside the log is an error that says its
range.

Exit code 1 where an offset is not in the log, or nothing is there to be read; 3 where a partition does not answer.""",
)
@config_option("peek")
@click.option("--group", metavar="GROUP", help="What this group would read next: from its committed offsets on.")
@click.option("--topic", metavar="TOPIC", help="A topic; with --group only this one of it.")
@click.option("--partition", type=click.IntRange(min=0), help="A partition; with --group only this one of it.")
@click.option("--offset", type=click.IntRange(min=0), help="From this offset on.")
@click.option(
    "--at", type=Instant(), metavar="TIME", help="From the first record on of then or later: 10m (ago), 03:00."
)
@click.option("--latest", is_flag=True, help="The last records that there are.")
@click.option("--max-records", type=click.IntRange(min=1), default=5, show_default=True, help="Of each partition.")
@click.option("--values", "with_values", is_flag=True, help="The values, too; else their sizes only.")
@isolation_option
@reading_timeout_option
@cluster_options
@output_options
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
    """Show the next records that a group would read, or those of a partition: offsets, times, sizes, keys, headers."""
    output = output_of(options)
    _require_one_way(group, topic, partition, [offset, at, latest or None])
    if bootstrap_server is None:
        raise UsageError("peek reads from the live cluster: name a broker by --bootstrap-server")
    from offsetstream.cluster.peeking import Peek  # noqa: PLC0415 - only what is asked is imported

    properties = client_properties(command_config)
    peeking = Peek(bootstrap_server, properties, isolation_level, timeout)
    if group is not None:
        starts = _committed(peeking, properties, group, topic, partition)
        found = _readable(peeking, starts).read(starts, max_records)
    else:
        place = (str(topic), int(partition or 0))
        found = {place: _of_partition(_readable(peeking, [place]), place, offset, at, max_records)}
    rows = [
        {"topic": place[0], "partition": place[1]}
        | record_row(record, with_values=with_values, output_format=output.output_format)
        for place, reading in sorted(found.items())
        for record in reading.records
    ]
    columns = (*_COLUMNS, *(_VALUES if with_values else ()))
    output.table(columns, rows, closing=f"{counted(len(rows), 'record')} of {counted(len(found), 'partition')}.")
    click.get_current_context().exit(_tell(found))


def _require_one_way(group: str | None, topic: str | None, partition: int | None, places: list[Any]) -> None:
    given = sum(place is not None for place in places)
    if given + (group is not None) != 1:
        raise UsageError("give one of --group, or --offset, --at and --latest of a partition")
    if group is None and (topic is None or partition is None):
        raise UsageError("--offset, --at and --latest are of one partition: name it by --topic and --partition")


def _committed(
    peeking: Peek, properties: Mapping[str, str], group: str, topic: str | None, partition: int | None
) -> dict[Place, int]:
    from offsetstream.cluster.committed import no_offset  # noqa: PLC0415 - only what is asked is imported
    from offsetstream.cluster.offsets import GroupOffsets  # noqa: PLC0415 - likewise
    from offsetstream.cluster.permissions import require_to_see_topics_of_groups  # noqa: PLC0415 - likewise

    require_to_see_topics_of_groups(peeking.cluster, [topic] if topic else [])
    offsets = GroupOffsets(peeking.cluster.bootstrap_server, properties).fetch(group)
    found = dict[Place, int]()
    for place, committed in sorted(offsets.items()):
        if topic not in {None, place[0]} or partition not in {None, place[1]}:
            continue
        if committed.offset is None:
            tell(f"{place[0]}-{place[1]}: {committed.error or no_offset()}")
        else:
            found[place] = committed.offset
    if not found:
        tell(f"Error: group '{group}' has no such committed offset.")
        click.get_current_context().exit(1)
    return found


def _readable(peeking: Peek, places: Collection[Place]) -> Peek:
    from offsetstream.cluster.permissions import require_to_read  # noqa: PLC0415 - only what is asked is imported

    require_to_read(peeking.cluster, {topic for topic, _ in places})
    return peeking


def _of_partition(peeking: Peek, place: Place, offset: int | None, at: datetime | None, max_records: int) -> Reading:
    if offset is not None:
        return peeking.read({place: offset}, max_records)[place]
    return peeking.latest(place, max_records) if at is None else peeking.since(place, milliseconds(at), max_records)


def _tell(found: Mapping[Place, Reading]) -> int:
    """Say why partitions give no more records; returns the exit code."""
    code = 0 if any(reading.records for reading in found.values()) else 1
    for (topic, number), reading in sorted(found.items()):
        told = told_nothing(topic, reading)
        if told is not None:
            tell(f"{'Error: ' if reading.error else ''}{topic}-{number}: {told}")
        elif not reading.records:
            tell(f"{topic}-{number}: nothing is there to be read from offset {reading.offset} on")
        if reading.error:
            code = max(code, UNREACHABLE if is_unreachable(reading.error) else 1)
    return code
