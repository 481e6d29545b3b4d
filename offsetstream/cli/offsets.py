"""`offsetstream offsets list`, `expiring` and `orphans`: committed offsets, now or at a past time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.age import AGE, Age, SampledEndOffsets, TopicPartition, warn_if_loading
from offsetstream.cli.answers import (
    Answer,
    Asked,
    Row,
    Rows,
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
from offsetstream.cli.names import expand, missing_of, no_history_messages, unknown_text
from offsetstream.cli.options import (
    client_properties,
    cluster_options,
    config_option,
    max_age_option,
    output_of,
    row_options,
    tables_option,
)
from offsetstream.cli.output import Column, Output, RereadRows
from offsetstream.cli.text import Duration, capitalized, counted, duration_text, print_line, time_text
from offsetstream.errors import UsageError
from offsetstream.tables.create import require_cluster
from offsetstream.tables.location import store_at

if TYPE_CHECKING:
    from offsetstream.cluster.answers import CommittedOffset
    from offsetstream.tables.store import Store
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
_READ = (
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
@config_option("offsets.list", is_lookup=True)
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
    is_past, asked = at is not None, group
    group, topic = (expand(store, "group_id", group, past=is_past), expand(store, "topic", topic, past=is_past))
    exact = set(asked) & set(group)
    where = {"group_id": group or None, "topic": topic or None, "partition": partition or None}
    from offsetstream.tables.lookup import Lookup  # noqa: PLC0415 - imports DuckDB, which --help does not need

    if live:
        list_live(output, store, exact, bootstrap_server, command_config, where, require_stable=require_stable)
        return
    if at is not None:
        _list_at(output, open_reader(tables, at, group, max_age=max_age), at, where, exact)
        return
    lookup = Lookup(store)
    warn_if_loading(lookup, group)
    age = Age.of_tables(lookup.store, max_age)
    age.warn_about_groups(lookup.store, group)
    sampled = SampledEndOffsets(lookup)
    missing = set(exact)

    def rows() -> Iterator[dict[str, Any]]:
        for group_id, found in groupby(lookup.stream("committed_offsets", _READ, where, order=_ORDER), _GROUP_ID):
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


def _list_at(output: Output, reader: ViewReader, at: datetime, where: dict[str, Any], exact: Collection[str]) -> None:
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
    missing = nothing or missing_of(reader, rows, exact, at=at)
    for message in missing or [
        f"group '{name}' had no such committed offset" for name in sorted(set(exact) - found_groups)
    ]:
        print_line(f"Error: {message}")
    click.get_current_context().exit(1 if nothing or set(exact) - found_groups else 0)


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


_LIVE = (
    Column("group", "GROUP", 15),
    Column("topic", "TOPIC", 15),
    Column("partition", "PARTITION", 9, "id"),
    Column("committed_offset", "COMMITTED-OFFSET", 16, "id"),
    Column("live_offset", "LIVE-OFFSET", 11, "id"),
    Column("difference", "DIFFERENCE", 10, "number"),
    Column("leader_epoch"),
    Column("live_leader_epoch"),
    Column("metadata"),
    Column("live_metadata", "LIVE-METADATA", 13),
    Column("error", "ERROR"),
)
_COMPARED_TABLE = ("group_id", "topic", "partition", "committed_offset", "leader_epoch", "metadata")
_COMPARED = ("committed_offset", "leader_epoch", "metadata")


def list_live(
    output: Output,
    store: Store,
    exact: Collection[str],
    bootstrap_server: str | None,
    command_config: str | None,
    where: Mapping[str, Collection[Any] | None],
    *,
    require_stable: bool,
) -> None:
    """Print both offsets of each partition; exit with code 1 if any differ, or if a group has no offset."""
    groups = where["group_id"]
    if bootstrap_server is None or not groups:
        raise UsageError("--live reads from the coordinators of groups: give --bootstrap-server and --group")
    from offsetstream.cluster.client import require_to_see  # noqa: PLC0415 - likewise
    from offsetstream.cluster.offsets import GroupOffsets  # noqa: PLC0415 - imported on use

    cluster = GroupOffsets(bootstrap_server, client_properties(command_config))
    require_cluster(store, cluster.cluster_id())
    rows: list[Row] = []
    for group_id in sorted(set(groups)):
        live = cluster.fetch(group_id, require_stable=require_stable)  # first, so that the tables are at least as new
        group_rows = _live_rows(store, group_id, live, {**where, "group_id": [group_id]})
        require_to_see(cluster, {row["topic"] for row in group_rows if row["is_unknown_there"]}, [])
        rows += group_rows
    different = sum(row["is_different"] for row in rows)
    differ = "differs" if different == 1 else "differ"
    closing = f"{counted(len(rows), 'offset')}; {different} {differ} between the coordinator and the tables."
    output.table(_LIVE, rows, closing=closing)
    missing = sorted(set(exact) - {row["group"] for row in rows})
    for group_id in missing:
        print_line(f"Error: group '{group_id}' has no such committed offset.")
    click.get_current_context().exit(1 if different or missing else 0)


def _live_rows(
    store: Store,
    group_id: str,
    live: Mapping[tuple[str, int], CommittedOffset],
    where: Mapping[str, Collection[Any] | None],
) -> list[Row]:
    from offsetstream.tables.lookup import Lookup  # noqa: PLC0415 - imports DuckDB, which --help does not need

    # A new look-up reads the tables as they are now, not as they were for the previous group.
    found = Lookup(store).rows("committed_offsets", _COMPARED_TABLE, {**where, "in_coordinator_partition": [True]})
    in_tables = {(row["topic"], row["partition"]): row for row in found}
    wanted = [
        place
        for place in in_tables.keys() | live.keys()
        if _is_wanted(place[0], where["topic"]) and _is_wanted(place[1], where["partition"])
    ]
    return [_live_row(group_id, place, in_tables.get(place), live.get(place)) for place in sorted(wanted)]


def _is_wanted(value: Any, wanted: Collection[Any] | None) -> bool:
    return not wanted or value in wanted


def _live_row(group_id: str, place: tuple[str, int], stored: Row | None, live: CommittedOffset | None) -> Row:
    is_none = stored is None or stored["committed_offset"] < 0  # as a coordinator sees it
    ours: Sequence[Any] = (None, None, None) if stored is None or is_none else [stored[name] for name in _COMPARED]
    theirs = (live.offset, live.leader_epoch, live.metadata) if live and live.offset is not None else (None, None, None)
    is_known = None not in {ours[0], theirs[0]}
    return {
        "group": group_id,
        "topic": place[0],
        "partition": place[1],
        **dict(zip(_COMPARED, ours, strict=True)),
        "live_offset": theirs[0],
        "live_leader_epoch": theirs[1],
        "live_metadata": theirs[2] or None,
        "difference": theirs[0] - ours[0] if is_known else None,
        "error": live.error if live else None,
        "is_unknown_there": live is None,
        "is_different": not (live and live.error) and tuple(ours) != theirs,
    }


_OFFSET = (
    Column("group", "GROUP", 15, of="group_id"),
    Column("topic", "TOPIC", 15),
    Column("partition", "PARTITION", 9, "id"),
    Column("current_offset", "CURRENT-OFFSET", 14, "id", of="committed_offset"),
)


def _expiring_soon(asked: Asked, rows: Rows) -> Rows:
    """Return the offsets that expire within --within, then with --kept those that do not expire."""
    within = asked.options["within"]
    limit = None if within is None else within / timedelta(milliseconds=1)
    soon = [row for row in rows if row["kept_because"] is None and (limit is None or _is_within(row, limit))]
    return soon + [row for row in rows if asked.options["kept"] and row["kept_because"] is not None]


def _is_within(row: Row, limit: float) -> bool:
    return row["expires_in_ms"] is not None and row["expires_in_ms"] <= limit


def _add_due(_: Asked, row: Row) -> None:
    due = row["expires_in_ms"]
    row["expires_in"] = "due" if due is not None and due <= 0 else duration_text(due)


def _expiring_closing(asked: Asked, rows: Rows) -> str:
    soon, within = [row for row in _expiring_soon(asked, rows) if row["kept_because"] is None], asked.options["within"]
    dated = [row for row in soon if row["expires_at_ms"] is not None]
    kept = sum(row["kept_because"] is not None for row in rows)
    within_text = "" if within is None else f" within {duration_text(within / timedelta(milliseconds=1))}"
    first = f", the first at {time_text(dated[0]['expires_at_ms'])}" if dated else ""
    unknown = (
        f"; unknown for {len(soon) - len(dated)}: the job may not see the retention" if len(soon) > len(dated) else ""
    )
    groups = counted(len({row["group_id"] for row in dated}), "group")
    expire, do_not = "expires" if len(dated) == 1 else "expire", "does not" if kept == 1 else "do not"
    return (
        f"{counted(len(dated), 'offset')} of {groups} {expire}{within_text}{first}{unknown}; "
        f"{counted(kept, 'other')} {do_not} expire (--kept shows why); {asked.as_of}."
    )


expiring = Answer(
    name="offsets.expiring",
    text="""Show which committed offsets the brokers will delete, and when: the next first.

    Examples:
      offsetstream offsets expiring --within 24h
      offsetstream offsets expiring --group my-group --kept
      offsetstream offsets expiring --at 03:00 --output csv

    Exit code 1: a group or topic does not exist.""",
    view="expiring_offsets",
    select="""*, epoch_ms(commit_timestamp) AS committed_ms, coalesce(counted_from, kept_because) AS why""",
    order="expires_at_ms NULLS LAST, group_id, topic, partition",
    columns=(
        *_OFFSET,
        Column("state", "STATE", 6, of="group_state"),
        Column("expires_at", "EXPIRES-AT", 24, "time", of="expires_at_ms"),
        Column("expires_in", "EXPIRES-IN", 10, "duration", sort="expires_in_ms"),
        Column("why", "COUNTED"),
        Column("expires_in_ms"),
        Column("kept_because"),
        Column("commit_time", unit="time", of="committed_ms"),
        Column("type", of="group_type"),
        *AGE,
    ),
    options=(
        click.option(
            "--within",
            type=Duration(),
            metavar="TIME",
            help="Show only offsets that expire within 30m, 12h, 7d (default: all).",
        ),
        click.option("--kept", is_flag=True, help="Also show offsets that do not expire now, and why."),
    ),
    shown=_expiring_soon,
    complete=_add_due,
    closing=_expiring_closing,
).command()


def _orphans_closing(asked: Asked, rows: Rows) -> str:
    groups = counted(len({row["group_id"] for row in rows}), "group")
    return f"{counted(len(rows), 'useless offset')} in {groups}, {asked.as_of}."


orphans = Answer(
    name="offsets.orphans",
    text="""Show committed offsets that no consumer can use, and why: for example, the topic is gone.

    Examples:
      offsetstream offsets orphans
      offsetstream offsets orphans --topic orders --output json
      offsetstream offsets orphans --at 2026-11-21T03:00

    Exit code 1: a group or topic does not exist.""",
    view="orphan_offsets",
    order="group_id, topic, partition",
    columns=(
        *_OFFSET,
        Column("last_commit", "LAST-COMMIT", 24, "time", of="commit_timestamp"),
        Column("messages_lost", "MESSAGES-LOST", 13, "number"),
        Column("why", "WHY", of="reason"),
        Column("topic_deleted_at", unit="time", of="deleted_at"),
        Column("topic_id"),
        Column("present_topic_id"),
        *AGE,
    ),
    closing=_orphans_closing,
).command()
