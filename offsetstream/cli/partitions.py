"""`offsetstream partitions`: how far each offsets partition is replayed, and its coordinator."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from offsetstream.cli.blocked import show_blocked
from offsetstream.cli.loading import warn_if_loading
from offsetstream.cli.messages import print_line
from offsetstream.cli.options import cluster_options, config_option, output_of, row_options, tables_option
from offsetstream.cli.output import Column
from offsetstream.cli.times import time_text
from offsetstream.tables.location import store_at
from offsetstream.tables.lookup import Lookup, Row

_PARTITIONS = (
    Column("offsets_partition", "PARTITION", 0, "id"),
    Column("load_state", "STATE"),
    Column("load_id", "LOAD", 0, "id"),
    Column("coordinator_id", "COORDINATOR", 0, "id"),
    Column("coordinator_epoch", "EPOCH", 0, "id"),
    Column("coordinator_available", "AVAILABLE"),
    Column("next_offset", "NEXT-OFFSET", 0, "id"),
    Column("last_stable_offset", "LAST-STABLE-OFFSET", 0, "id"),
    Column("high_watermark", "HIGH-WATERMARK", 0, "id"),
    Column("waiting_records", "WAITING", 0, "number"),
    Column("blocked_records", "BLOCKED", 0, "number"),
    Column("last_stable_offset_since", "BLOCKED-SINCE"),
    Column("groups_count", "GROUPS-AT-LOAD", 0, "number"),
    Column("offsets_count", "OFFSETS-AT-LOAD", 0, "number"),
    Column("caught_up_at", "CAUGHT-UP-AT"),
    Column("log_id"),
    Column("log_start_offset"),
    Column("load_started_at"),
    Column("loaded_at"),
    Column("load_end_offset"),
    Column("history_complete_from"),
    Column("next_decoded_offset"),
    Column("applied_leader_epoch"),
    Column("partition_count"),
    Column("placement_rule"),
    Column("filters"),
    Column("filtered_count"),
)
_EVENTS = (
    Column("event_at", "TIME", 24),
    Column("offsets_partition", "PARTITION", 0, "id"),
    Column("event", "EVENT", 20),
    Column("source", "SOURCE"),
    Column("load_id", "LOAD", 0, "id"),
    Column("coordinator_id", "COORDINATOR", 0, "id"),
    Column("coordinator_epoch", "EPOCH", 0, "id"),
    Column("previous_coordinator_id", "PREVIOUS-COORDINATOR", 0, "id"),
    Column("previous_coordinator_epoch", "PREVIOUS-EPOCH", 0, "id"),
    Column("records", "RECORDS", 0, "number"),
    Column("groups", "GROUPS", 0, "number"),
    Column("offsets", "OFFSETS", 0, "number"),
    Column("milliseconds", "MS", 0, "number"),
    Column("detail", "DETAIL"),
    Column("log_id"),
    Column("checkpoint_id"),
    Column("batch_id"),
)
_COMPUTED = {"waiting_records", "blocked_records"}
_TIMES = (
    *("event_at", "caught_up_at", "last_stable_offset_since", "load_started_at", "loaded_at"),
    "history_complete_from",
)
# The order of events with the same time.
_ORDER = ("removed", "unloaded", "coordinator moved", "leader epoch changed", "load started", "load failed", "loaded")


@click.command(
    epilog="""\b
Examples:
  offsetstream partitions --tables tables
  offsetstream partitions --offsets-partition 12 --offsets-partition 27 --output json
  offsetstream partitions --offsets-partition 12 --events
  offsetstream partitions --blocked --group my-group --bootstrap-server localhost:9092

WAITING counts offsets up to the last stable offset that are not applied yet. BLOCKED counts offsets beyond it: an
open transaction blocks them for every read_committed reader. GROUPS-AT-LOAD and OFFSETS-AT-LOAD are from the last load
or unload.

--blocked asks the live cluster, not the tables. It shows each open transaction with its producer, transactional id,
start and age, and the command that ends it. HANGING: no coordinator knows the transaction, so it never ends by itself.
Any other transaction ends after its TIMEOUT.

Exit code 1: a partition does not exist; with --blocked also: one is blocked, or does not answer."""
)
@config_option("partitions")
@click.option(
    "--offsets-partition",
    "wanted",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="Show only this partition of __consumer_offsets (repeatable; default: all).",
)
@click.option("--events", is_flag=True, help="Show the events of partitions in order: loads, moves of coordinators.")
@click.option("--blocked", is_flag=True, help="Show open transactions of the live cluster that block partitions.")
@click.option(
    "--group", multiple=True, metavar="GROUP", help="With --blocked: only partitions of this group (repeatable)."
)
@click.option(
    "--topic", multiple=True, metavar="TOPIC", help="With --blocked: only partitions of this topic (repeatable)."
)
@cluster_options
@tables_option
@row_options
def partitions(
    *,
    wanted: tuple[int, ...],
    events: bool,
    blocked: bool,
    group: tuple[str, ...],
    topic: tuple[str, ...],
    bootstrap_server: str | None,
    command_config: str | None,
    tables: str,
    **options: Any,
) -> None:
    """Show how far each partition of __consumer_offsets is replayed, its coordinator, and its events."""
    output = output_of(options)
    if (blocked and events) or ((group or topic) and not blocked):
        raise click.UsageError("--group and --topic need --blocked, and --blocked excludes --events")
    if blocked:
        show_blocked(output, bootstrap_server, command_config, offsets_partitions=wanted, groups=group, topics=topic)
        return
    lookup = Lookup(store_at(tables))
    warn_if_loading(lookup, None)
    rows = _rows(lookup, "offsets_partitions", _PARTITIONS, wanted)
    if events:
        output.table(_EVENTS, [_with_times(row) for row in _events(lookup, wanted)])
    else:
        rows.sort(key=lambda row: row["offsets_partition"])
        output.table(_PARTITIONS, [_with_times(row | _computed(row)) for row in rows])
        _tell_skipped(rows)
    missing = sorted(set(wanted) - {row["offsets_partition"] for row in rows})
    for number in missing:
        print_line(f"Error: the tables have no offsets partition {number}.")
    if missing:
        click.get_current_context().exit(1)


def _tell_skipped(rows: list[Row]) -> None:
    by_filters = Counter[str]()
    for row in rows:
        if row["filters"] is not None:
            by_filters[row["filters"]] += row["filtered_count"] or 0
    if by_filters:
        from offsetstream.tables.filters import Filters  # noqa: PLC0415 - slow: Arrow; most tables have no filters

        for filters, count in by_filters.items():
            records = "1 record" if count == 1 else f"{count:,} records"
            print_line(f"The filters skipped {records} since the last loads: {Filters.of(filters)}")


def _rows(lookup: Lookup, table: str, columns: tuple[Column, ...], wanted: tuple[int, ...]) -> list[Row]:
    names = [column.name for column in columns if column.name not in _COMPUTED]
    names = [f"{name}_ms" if name in _TIMES else name for name in names]
    return lookup.rows(table, names, {"offsets_partition": wanted or None})


def _events(lookup: Lookup, wanted: tuple[int, ...]) -> list[Row]:
    return sorted(
        _rows(lookup, "partition_events", _EVENTS, wanted),
        key=lambda row: (row["event_at_ms"], row["offsets_partition"], row["load_id"] or 0, _ORDER.index(row["event"])),
    )


def _computed(row: Row) -> Row:
    applied, stable, high = row["next_offset"], row["last_stable_offset"], row["high_watermark"]
    return {
        # Applied offsets may be newer than the sampled end offsets.
        "waiting_records": None if applied is None or stable is None else max(0, stable - applied),
        "blocked_records": None if stable is None or high is None else max(0, high - stable),
    }


def _with_times(row: Row) -> Row:
    return row | {name: time_text(row[f"{name}_ms"]) for name in _TIMES if f"{name}_ms" in row}
