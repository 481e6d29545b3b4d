"""`offsetstream offsets`: the committed offsets as the tables have them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import click

from offsetstream.cli.loading import tell_what_is_loading
from offsetstream.cli.options import config_option, output_of, output_options, tables_option
from offsetstream.cli.output import Column, ReadAnew, tell
from offsetstream.cli.times import time_text
from offsetstream.tables.location import store_at
from offsetstream.tables.lookup import Lookup

# METADATA is last, since it may be long.
_LIST = (
    Column("group", "GROUP", 15),
    Column("topic", "TOPIC", 15),
    Column("partition", "PARTITION", 10),
    Column("committed_offset", "COMMITTED-OFFSET", 16),
    Column("leader_epoch", "LEADER-EPOCH", 12),
    Column("commit_time", "COMMIT-TIME", 24),
    Column("metadata", "METADATA"),
    Column("expire_time"),
    Column("topic_id"),
    Column("record_offset"),
    Column("offsets_partition"),
    Column("in_coordinator_partition"),
)
_COLUMNS = (
    "group_id",
    "topic",
    "partition",
    "committed_offset",
    "leader_epoch",
    "metadata",
    "commit_timestamp_ms",
    "expire_timestamp_ms",
    "topic_id",
    "record_offset",
    "offsets_partition",
    "in_coordinator_partition",
)
_ORDER = ("group_id", "topic", "partition", "offsets_partition")
_GROUP_ID = itemgetter("group_id")


@click.group()
def offsets() -> None:
    """List committed offsets, from the tables."""


@offsets.command(
    "list",
    epilog="""\b
Examples:
  offsetstream offsets list --group my-group
  offsetstream offsets list --topic orders --partition 0
  offsetstream offsets list --group my-group --output csv --file offsets.csv

Exit code 1 where a group has no committed offset there.""",
)
@config_option("offsets.list")
@click.option("--group", multiple=True, metavar="GROUP", help="Only this group; repeatable.")
@click.option("--topic", multiple=True, metavar="TOPIC", help="Only this topic; repeatable.")
@click.option("--partition", multiple=True, type=int, help="Only this partition; repeatable.")
@tables_option
@output_options
def list_offsets(
    *,
    group: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    tables: str,
    **options: Any,
) -> None:
    """List committed offsets, with the time of the commit and what the client wrote beside it."""
    output = output_of(options)
    lookup = Lookup(store_at(tables))
    tell_what_is_loading(lookup, group)
    where = {"group_id": group or None, "topic": topic or None, "partition": partition or None}
    missing = set(group)

    def rows() -> Iterator[dict[str, Any]]:
        for group_id, found in groupby(lookup.stream("committed_offsets", _COLUMNS, where, order=_ORDER), _GROUP_ID):
            missing.discard(group_id)
            of_group = list(found)
            yield from map(_list_row, _current(of_group) if output.is_text else of_group)

    output.table(_LIST, ReadAnew(rows))
    for group_id in sorted(missing):
        tell(f"Error: group '{group_id}' has no such committed offset.")
    if missing:
        click.get_current_context().exit(1)


def _current(of_group: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out the copies that a change of the number of offsets partitions left behind."""
    return [row for row in of_group if row["in_coordinator_partition"]] or of_group


def _list_row(row: dict[str, Any]) -> dict[str, Any]:
    return row | {
        "group": row["group_id"],
        "commit_time": time_text(row["commit_timestamp_ms"]),
        "expire_time": time_text(row["expire_timestamp_ms"]),
    }
