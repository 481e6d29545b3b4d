"""`offsetstream offsets list`: the committed offsets, now or at a past time, or compared with the live cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.age import AGE, Age
from offsetstream.cli.answers import (
    at_option,
    ends_of,
    ends_text,
    fetch_sorted,
    group_options,
    open_reader,
    partition_options,
    table_of,
    topic_options,
)
from offsetstream.cli.describe import OFFSET_STATE, End, offset_state
from offsetstream.cli.live_offsets import list_live
from offsetstream.cli.loading import warn_if_loading
from offsetstream.cli.messages import print_line
from offsetstream.cli.names import expand, missing_of, no_history_messages, unknown_text
from offsetstream.cli.options import (
    cluster_options,
    config_option,
    max_age_option,
    output_of,
    row_options,
    tables_option,
)
from offsetstream.cli.output import Column, Output, RereadRows
from offsetstream.cli.sampled_end_offsets import SampledEndOffsets, TopicPartition
from offsetstream.cli.times import capitalized, time_text
from offsetstream.tables.location import store_at
from offsetstream.tables.lookup import Lookup

if TYPE_CHECKING:
    from offsetstream.views.reader import ViewReader

_ENDS = (Column("log_end_offset", "LOG-END-OFFSET", 14, "id"), Column("lag", "LAG", 8, "number"))
# METADATA is last, since it may be long.
_LIST = (
    Column("group", "GROUP", 15),
    Column("topic", "TOPIC", 15),
    Column("partition", "PARTITION", 10, "id"),
    Column("committed_offset", "COMMITTED-OFFSET", 16, "id"),
    Column("leader_epoch", "LEADER-EPOCH", 12, "id"),
    Column("commit_time", "COMMIT-TIME", 24),
    *_ENDS,
    Column("metadata", "METADATA"),
    Column("expire_time"),
    Column("topic_id"),
    Column("record_offset"),
    Column("offsets_partition"),
    Column("in_coordinator_partition"),
    *AGE,
    Column("note"),
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


@click.command(
    "list",
    epilog="""\b
Examples:
  offsetstream offsets list --group my-group
  offsetstream offsets list --topic orders --partition 0
  offsetstream offsets list --group my-group --output csv --file offsets.csv
  offsetstream offsets list --group my-group --at 03:00
  offsetstream offsets list --group my-group --live --bootstrap-server localhost:9092

LOG-END-OFFSET and LAG use the end offsets that the job sampled.

Exit code 1: a group has no committed offset that matches, or --live differs from the tables.""",
)
@config_option("offsets.list")
@group_options
@topic_options
@partition_options
@at_option
@max_age_option
@click.option("--live", is_flag=True, help="Compare with the offsets that the groups' coordinators have now.")
@click.option("--require-stable", is_flag=True, help="With --live: refuse offsets that an open transaction may change.")
@cluster_options
@tables_option
@row_options
def list_offsets(
    *,
    group: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    at: datetime | None,
    max_age: float | None,
    live: bool,
    require_stable: bool,
    bootstrap_server: str | None,
    command_config: str | None,
    tables: str,
    **options: Any,
) -> None:
    """List committed offsets, with the time of the commit and its metadata."""
    output = output_of(options)
    if (require_stable and not live) or (live and at is not None):
        raise click.UsageError("--require-stable needs --live, and --live has no --at")
    store = store_at(tables)
    group, topic = expand(store, "group_id", group), expand(store, "topic", topic)
    where = {"group_id": group or None, "topic": topic or None, "partition": partition or None}
    if live:
        lookup = Lookup(store)
        list_live(output, lookup, bootstrap_server, command_config, where, require_stable=require_stable)
        return
    if at is not None:
        _list_at(output, open_reader(tables, at, group, max_age=max_age), at, where)
        return
    lookup = Lookup(store)
    warn_if_loading(lookup, group)
    age = Age.of_tables(lookup.store, max_age)
    age.warn_about_groups(lookup.store, group)
    sampled = SampledEndOffsets(lookup)
    missing = set(group)

    def rows() -> Iterator[dict[str, Any]]:
        for group_id, found in groupby(lookup.stream("committed_offsets", _COLUMNS, where, order=_ORDER), _GROUP_ID):
            missing.discard(group_id)
            group_rows = list(found)
            ends = sampled.ends({(row["topic"], row["partition"]) for row in group_rows})
            shown = _current(group_rows) if output.is_text else group_rows
            yield from (age.row(_list_row(row, ends)) for row in shown)

    has_ends = sampled.has_any
    closing = partial(_closing, output, sampled, age.line_if_old(lookup.store, group))
    output.table(_columns(output, has_ends=has_ends), RereadRows(rows), closing=closing)
    for group_id in sorted(missing):
        print_line(f"Error: group '{group_id}' has no such committed offset.")
    if missing:
        click.get_current_context().exit(1)


def _closing(output: Output, sampled: SampledEndOffsets, age_line: str | None) -> str | None:
    """Return the closing line: JSON and CSV have the age of each row, so they only get that of the end offsets."""
    ends = sampled.closing()
    return " ".join(filter(None, (ends, age_line))) or None if output.is_text else ends


def _list_at(output: Output, reader: ViewReader, at: datetime, where: dict[str, Any]) -> None:
    """List the offsets as they were at a past time."""
    group = where["group_id"] or ()
    age = Age.of(reader)
    found = fetch_sorted(table_of(reader, "committed_offsets", where))
    ends, sampled = ends_of(reader, {row["topic"] for row in found})
    rows = sorted((age.row(_list_row(row, ends)) for row in found), key=itemgetter(*_ORDER))
    age.warn({row["offsets_partition"] for row in rows} or None)
    closing = capitalized(f"{age.as_of_text(reader.store, group)}; {ends_text(sampled, at)}.")
    nothing = no_history_messages(reader, rows, group, at)
    if rows or not (group or nothing) or not output.is_text:
        output.table(_columns(output, has_ends=True), rows, closing=closing + unknown_text(reader))
    found_groups = {row["group_id"] for row in rows}
    missing = nothing or missing_of(reader, rows, group, at=at)
    for message in missing or [
        f"group '{name}' had no such committed offset" for name in sorted(set(group) - found_groups)
    ]:
        print_line(f"Error: {message}")
    click.get_current_context().exit(1 if nothing or set(group) - found_groups else 0)


def _columns(output: Output, *, has_ends: bool) -> list[Column]:
    """Return the columns; text has no end offsets if none was sampled."""
    return [column for column in _LIST if has_ends or not output.is_text or column not in _ENDS]


def _current(group_rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows without copies in old offsets partitions (their number may have changed)."""
    return [row for row in group_rows if row["in_coordinator_partition"]] or group_rows


def _list_row(row: dict[str, Any], ends: Mapping[TopicPartition, End]) -> dict[str, Any]:
    found = offset_state(row["committed_offset"], ends.get((row["topic"], row["partition"])), clamped=True)
    return row | {
        **dict(zip(OFFSET_STATE, found, strict=True)),
        "group": row["group_id"],
        "commit_time": time_text(row["commit_timestamp_ms"]),
        "expire_time": time_text(row["expire_timestamp_ms"]),
    }
