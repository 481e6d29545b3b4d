"""`offsetstream offsets list`, `expiring` and `orphans`: committed offsets, now or at a past time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import compress
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.age import AGE
from offsetstream.cli.answers import Answer, Asked, Found, Part, Row, Rows
from offsetstream.cli.describe import places_of, states_of
from offsetstream.cli.group_state import Current
from offsetstream.cli.names import expand
from offsetstream.cli.options import client_properties, cluster_options
from offsetstream.cli.output import Column
from offsetstream.cli.text import Duration, counted, duration_text, time_text
from offsetstream.errors import UsageError
from offsetstream.tables.create import require_cluster
from offsetstream.tables.location import store_at

if TYPE_CHECKING:
    from offsetstream.cluster.answers import CommittedOffset
    from offsetstream.tables.store import Store

_ENDS = (Column("log_end_offset", "LOG-END-OFFSET", 14, "id"), Column("lag", "LAG", 8, "number"))
# METADATA is last, since it may be long.
_LIST = (
    Column("group", "GROUP", 15, of="group_id"),
    Column("topic", "TOPIC", 15),
    Column("partition", "PARTITION", 10, "id"),
    Column("committed_offset", "COMMITTED-OFFSET", 16, "id"),
    Column("leader_epoch", "LEADER-EPOCH", 12, "id"),
    Column("commit_time", "COMMIT-TIME", 24, "time", of="commit_timestamp_ms"),
    *_ENDS,
    Column("metadata", "METADATA"),
    Column("expire_time", unit="time", of="expire_timestamp_ms"),
    Column("topic_id"),
    Column("record_offset"),
    Column("offsets_partition"),
    Column("in_coordinator_partition"),
    *AGE,
    Column("note"),
)
_READ = (
    *("group_id", "topic", "partition", "committed_offset", "leader_epoch", "metadata", "commit_timestamp_ms"),
    *("expire_timestamp_ms", "topic_id", "record_offset", "offsets_partition", "in_coordinator_partition"),
)
_ORDER = ("group_id", "topic", "partition", "offsets_partition")


def _columns_of(asked: Asked, _: Rows) -> Sequence[Column]:
    """Return the columns; text has no end offsets if none was sampled."""
    return [column for column in _LIST if asked.ends.has_any or not asked.is_text or column not in _ENDS]


def _listed(asked: Asked) -> Iterator[Part]:
    """Yield the offsets; text leaves out copies in old offsets partitions (their number may have changed)."""
    where = {"topic": asked.topics or None, "partition": asked.options["partition"] or None}
    current, order = Current(), ("group_id", "-in_coordinator_partition", *_ORDER[1:]) if asked.is_text else _ORDER
    for part in asked.reader.tables.parts("committed_offsets", _READ, where, order=order):
        wanted = current.of(part) if asked.is_text else [True] * len(part["group_id"])
        kept = {name: list(compress(values, wanted)) for name, values in part.items()}
        yield kept | states_of(kept, asked.ends.of(set(places_of(kept))), clamped=True)


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


def _live_if_asked(options: dict[str, Any]) -> Callable[[], Found] | None:
    """Return what compares both offsets of each partition, if --live is given; exit code 1 if any differ."""
    live, stable = options.pop("live"), options.pop("require_stable")
    server, config = options.pop("bootstrap_server"), options.pop("command_config")
    if (stable and not live) or (live and options["at"] is not None):
        raise click.UsageError("--require-stable needs --live, and --live has no --at")
    if not live:
        return None
    store = store_at(options["tables"])
    groups, topics = expand(store, "group_id", options["group"]), expand(store, "topic", options["topic"])
    if server is None or not groups:
        raise UsageError("--live reads from the coordinators of groups: give --bootstrap-server and --group")
    from offsetstream.cluster.client import require_to_see
    from offsetstream.cluster.offsets import GroupOffsets

    cluster = GroupOffsets(server, client_properties(config))
    require_cluster(store, cluster.cluster_id())
    where = {"topic": topics or None, "partition": options["partition"] or None}

    def ask() -> Found:
        rows: list[Row] = []
        for group_id in sorted(set(groups)):
            found = cluster.fetch(group_id, require_stable=stable)  # first, so that the tables are at least as new
            group_rows = _live_rows(store, group_id, found, {**where, "group_id": [group_id]})
            require_to_see(cluster, {row["topic"] for row in group_rows if row["is_unknown_there"]}, [])
            rows += group_rows
        different = sum(row["is_different"] for row in rows)
        differ = "differs" if different == 1 else "differ"
        closing = f"{counted(len(rows), 'offset')}; {different} {differ} between the coordinator and the tables."
        without = sorted(set(options["group"]) & set(groups) - {row["group"] for row in rows})
        return Found(_LIVE, rows, closing, int(different > 0), [_NOTHING.format(each) for each in without])

    return ask


def _live_rows(
    store: Store,
    group_id: str,
    live: Mapping[tuple[str, int], CommittedOffset],
    where: Mapping[str, Collection[Any] | None],
) -> list[Row]:
    from offsetstream.tables.lookup import Lookup

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


_NOTHING = "group '{}' has no such committed offset"
list_offsets = Answer(
    name="offsets.list",
    text="""List committed offsets, with the time of the commit and its metadata.

    Examples:
      offsetstream offsets list --group my-group
      offsetstream offsets list --topic orders --partition 0
      offsetstream offsets list --group my-group --output csv --file offsets.csv
      offsetstream offsets list --group my-group --at 03:00
      offsetstream offsets list --group my-group --live --bootstrap-server localhost:9092

    LOG-END-OFFSET and LAG use the end offsets that the job sampled.

    Exit code 1: a group has no committed offset that matches, or --live differs from the tables.""",
    filters=("group", "topic", "partition"),
    options=(
        click.option("--live", is_flag=True, help="Compare with the offsets that the groups' coordinators have now."),
        click.option(
            "--require-stable", is_flag=True, help="With --live: refuse offsets that an open transaction may change."
        ),
        cluster_options,
    ),
    columns=_LIST,
    columns_of=_columns_of,
    parts=_listed,
    nothing=_NOTHING,
    instead=_live_if_asked,
).command()


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
