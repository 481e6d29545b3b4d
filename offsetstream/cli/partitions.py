"""`offsetstream partitions`: how far each offsets partition is replayed, and what blocks partitions."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.age import Age
from offsetstream.cli.answers import Found, open_reader, show, watch_option
from offsetstream.cli.options import (
    client_properties,
    cluster_options,
    output_of,
    require_server,
    row_options,
    tables_option,
)
from offsetstream.cli.output import Column
from offsetstream.cli.settings_file import config_option
from offsetstream.cli.text import counted, duration_text, instant_text, milliseconds, time_text
from offsetstream.cluster.rights import OFFSETS_TOPIC, TRANSACTION_STATE
from offsetstream.errors import ClusterError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from offsetstream.cluster.client import Cluster
    from offsetstream.cluster.log_ends import Answers, LogEnd, NoEnd
    from offsetstream.cluster.open_transactions import Open, OpenTransaction
    from offsetstream.tables.lookup import Lookup

Row = dict[str, Any]
_PARTITIONS: Sequence[Column] = (
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
_EVENTS: Sequence[Column] = (
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
@config_option("partitions", is_lookup=True)
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
@watch_option
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
    watch: float | None,
    bootstrap_server: str | None,
    command_config: str | None,
    tables: str,
    **options: Any,
) -> None:
    """Show how far each partition of __consumer_offsets is replayed, its coordinator, and its events."""
    output = output_of(options)
    if (blocked and events) or ((group or topic) and not blocked):
        raise click.UsageError("--group and --topic need --blocked, and --blocked excludes --events")
    if wanted and (group or topic):
        raise UsageError(
            "--offsets-partition selects __consumer_offsets, --group and --topic data topics: give one kind"
        )
    ask = partial(_replayed, tables, wanted, with_events=events)
    if blocked:
        server = require_server(bootstrap_server, "--blocked")
        ask = partial(_blocked, server, command_config, wanted, group, topic)
    show(output, watch, ask)


def _replayed(tables: str, wanted: tuple[int, ...], *, with_events: bool) -> Found:
    reader = open_reader(tables)
    lookup, warnings = reader.tables, Age.of(reader).loading_lines(reader.store, ())
    found = _rows(lookup, "offsets_partitions", _PARTITIONS, wanted)
    missing_numbers = set(wanted) - {row["offsets_partition"] for row in found}
    missing = [f"the tables have no offsets partition {number}." for number in sorted(missing_numbers)]
    if with_events:
        rows, columns, skipped = _events(lookup, wanted), _EVENTS, None
    else:
        rows = [row | _computed(row) for row in sorted(found, key=itemgetter("offsets_partition"))]
        columns, skipped = _PARTITIONS, _skipped(found)
    return Found(columns, [_with_times(row) for row in rows], skipped, missing=missing, warnings=warnings)


def _skipped(rows: list[Row]) -> str | None:
    by_filters = Counter[str]()
    for row in rows:
        if row["filters"] is not None:
            by_filters[row["filters"]] += row["filtered_count"] or 0
    if not by_filters:
        return None
    from offsetstream.tables.filters import Filters  # loads Arrow; most tables have no filters

    return " ".join(
        f"The filters skipped {counted(count, 'record')} since the last loads: {Filters.of(filters)}."
        for filters, count in by_filters.items()
    )


def _rows(lookup: Lookup, table: str, columns: Sequence[Column], wanted: tuple[int, ...]) -> list[Row]:
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


_BLOCKED = (
    Column("topic", "TOPIC", 10),
    Column("partition", "PARTITION", 0, "id"),
    Column("last_stable_offset", "LAST-STABLE-OFFSET", 0, "id"),
    Column("high_watermark", "HIGH-WATERMARK", 0, "id"),
    Column("blocked_records", "BLOCKED", 0, "number"),
    Column("producer_id", "PRODUCER-ID", 0, "id"),
    Column("producer_epoch", "EPOCH", 0, "id"),
    Column("transactional_id", "TRANSACTIONAL-ID"),
    Column("state", "STATE"),
    Column("start_offset", "START-OFFSET", 0, "id"),
    Column("started_at", "STARTED-AT"),
    Column("age", "AGE", 0, "duration"),
    Column("timeout", "TIMEOUT", 0, "duration"),
    Column("is_hanging", "HANGING"),
    Column("age_ms"),
    Column("timeout_ms"),
    Column("last_written_at"),
    Column("coordinator_id"),
    Column("coordinator_epoch"),
    Column("leader_id"),
    Column("error", "ERROR"),
    Column("command", "END-IT-BY"),
    Column("abort_command"),
)
_TIMEOUT = 30.0  # seconds for each request
Wanted = Mapping[str, Collection[int] | None]


def _blocked(
    bootstrap_server: str,
    command_config: str | None,
    offsets_partitions: Collection[int],
    groups: Collection[str],
    topics: Collection[str],
) -> Found:
    """Return a row for each open transaction that blocks a partition; exit code 1 if there is any.

    It checks all offsets partitions, or some, or the data partitions of groups or topics.
    """
    from offsetstream.cluster.client import (
        require_to_read,
        require_to_see_topics_of_groups,
    )
    from offsetstream.cluster.log_ends import NO_TOPIC, LogEnds, NoEnd

    properties = client_properties(command_config)
    cluster = LogEnds(bootstrap_server, properties)
    if groups:
        require_to_see_topics_of_groups(cluster, topics)
    wanted = _wanted_places(bootstrap_server, properties, offsets_partitions, groups, topics)
    require_to_read(cluster, wanted)
    answers = cluster.ends(wanted, {})
    ends = {place: end for place, end in answers.items() if not (isinstance(end, NoEnd) and end.error == NO_TOPIC)}
    rows = _blocked_rows(bootstrap_server, command_config, ends, _opened(cluster, properties, ends))
    return Found(_BLOCKED, rows, _blocked_closing(rows, len(ends)), int(bool(rows)), _missing_places(wanted, ends))


def _wanted_places(
    bootstrap_server: str,
    properties: Mapping[str, str],
    offsets_partitions: Collection[int],
    groups: Collection[str],
    topics: Collection[str],
) -> Wanted:
    from offsetstream.cluster.offsets import GroupOffsets

    if not groups:
        return dict.fromkeys(topics) if topics else {OFFSETS_TOPIC: offsets_partitions or None}
    cluster, found = GroupOffsets(bootstrap_server, properties), dict[str, set[int]]()
    for group_id in groups:
        places = [place for place in cluster.fetch(group_id) if not topics or place[0] in topics]
        if not places:
            raise UnknownNameError(f"group '{group_id}' has no such committed offset")
        for topic, number in places:
            found.setdefault(topic, set()).add(number)
    return found


def _opened(cluster: Cluster, properties: Mapping[str, str], ends: Answers) -> Open:
    from offsetstream.cluster.java_client import LIMITED_RETRIES, java_admin
    from offsetstream.cluster.log_ends import LogEnd
    from offsetstream.cluster.open_transactions import OpenTransactions

    blocked = [place for place, end in ends.items() if isinstance(end, LogEnd) and _blocked_records(end)]
    if not blocked:
        return {}
    with java_admin(cluster.bootstrap_server, {**properties, **LIMITED_RETRIES}) as (jvm, client):
        return OpenTransactions(jvm, client, _TIMEOUT).find(blocked, all_coordinate=_all_coordinate(cluster))


def _all_coordinate(cluster: Cluster) -> bool:
    """Return whether each partition of __transaction_state has a leader; false if that cannot be read."""
    try:
        return None not in cluster.leaders(TRANSACTION_STATE).values()
    except ClusterError:
        return False


def _blocked_records(end: LogEnd) -> int:
    return end.high_watermark - end.last_stable_offset


def _blocked_rows(bootstrap_server: str, command_config: str | None, ends: Answers, opened: Open) -> list[Row]:
    tool = ["kafka-transactions.sh", "--bootstrap-server", bootstrap_server]
    tool += ["--command-config", command_config] if command_config else []
    return [row for place in sorted(ends) for row in _partition_rows(tool, place, ends[place], opened.get(place))]


def _partition_rows(
    tool: list[str], place: tuple[str, int], end: LogEnd | NoEnd, opened: list[OpenTransaction] | str | None
) -> Iterator[Row]:
    from offsetstream.cluster.log_ends import NoEnd

    row = {"topic": place[0], "partition": place[1]}
    if isinstance(end, NoEnd):
        yield row | {"error": end.error}
        return
    row |= {"blocked_records": _blocked_records(end), "leader_id": end.leader_id}
    row |= {"last_stable_offset": end.last_stable_offset, "high_watermark": end.high_watermark}
    if isinstance(opened, str):
        yield row | {"error": opened}
    else:  # none if it has just ended
        yield from (row | _transaction(tool, place, each) for each in opened or ())


def _transaction(tool: list[str], place: tuple[str, int], opened: OpenTransaction) -> Row:
    started, now_ms = opened.started_ms, milliseconds(datetime.now(UTC))
    age = None if started is None else now_ms - started
    abort = ["abort", "--topic", place[0], "--partition", str(place[1]), "--start-offset", str(opened.start_offset)]
    end_command = abort
    if opened.transactional_id is not None and opened.is_hanging is False:
        # The coordinator ends it on all its partitions; an abort of one partition would split the transaction.
        end_command = ["forceTerminateTransaction", "--transactionalId", opened.transactional_id]
    return asdict(opened) | {
        "started_at": time_text(started),
        "age": duration_text(age),
        "age_ms": age,
        "timeout": duration_text(opened.timeout_ms),
        "last_written_at": time_text(opened.last_written_ms),
        "command": shlex.join([*tool, *end_command]),
        "abort_command": shlex.join([*tool, *abort]),
    }


def _blocked_closing(rows: list[Row], asked: int) -> str:
    transactions = [row for row in rows if row.get("producer_id") is not None]
    blocked = {(row["topic"], row["partition"]) for row in transactions}
    producers = {(row["producer_id"], row["producer_epoch"]) for row in transactions}
    silent = sum(1 for row in rows if row.get("error"))
    return (
        f"{len(blocked)} of {counted(asked, 'partition')} blocked by open transactions of "
        f"{counted(len(producers), 'producer')}, as of {instant_text(datetime.now(UTC))}"
        + (f"; {silent} did not answer." if silent else ".")
    )


def _missing_places(wanted: Wanted, ends: Answers) -> list[str]:
    existing = {topic for topic, _ in ends}
    topics = [
        f"topic '{topic}' is not there" for topic in sorted(wanted) if not wanted[topic] and topic not in existing
    ]
    return topics + [
        f"{topic} has no partition {number}"
        for topic, numbers in sorted(wanted.items())
        for number in sorted(numbers or ())
        if (topic, number) not in ends
    ]
