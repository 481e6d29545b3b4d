"""`offsetstream offsets list --live`: compare the offsets in the tables with those of the live coordinators."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.messages import counted, print_line
from offsetstream.cli.options import client_properties
from offsetstream.cli.output import Column, Output
from offsetstream.errors import UsageError
from offsetstream.tables.create import require_cluster
from offsetstream.tables.lookup import Lookup

if TYPE_CHECKING:
    from offsetstream.cluster.answers import CommittedOffset

_COLUMNS = (
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
_TABLE_COLUMNS = ("group_id", "topic", "partition", "committed_offset", "leader_epoch", "metadata")
_COMPARED = ("committed_offset", "leader_epoch", "metadata")
Row = dict[str, Any]


def list_live(
    output: Output,
    lookup: Lookup,
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
    require_cluster(lookup.store, cluster.cluster_id())
    rows: list[Row] = []
    for group_id in sorted(set(groups)):
        live = cluster.fetch(group_id, require_stable=require_stable)  # first, so that the tables are at least as new
        group_rows = _rows(lookup, group_id, live, {**where, "group_id": [group_id]})
        require_to_see(cluster, {row["topic"] for row in group_rows if row["is_unknown_there"]}, [])
        rows += group_rows
    different = sum(row["is_different"] for row in rows)
    differ = "differs" if different == 1 else "differ"
    closing = f"{counted(len(rows), 'offset')}; {different} {differ} between the coordinator and the tables."
    output.table(_COLUMNS, rows, closing=closing)
    missing = sorted(set(groups) - {row["group"] for row in rows})
    for group_id in missing:
        print_line(f"Error: group '{group_id}' has no such committed offset.")
    click.get_current_context().exit(1 if different or missing else 0)


def _rows(
    lookup: Lookup,
    group_id: str,
    live: Mapping[tuple[str, int], CommittedOffset],
    where: Mapping[str, Collection[Any] | None],
) -> list[Row]:
    # A new look-up reads the tables as they are now, not as they were for the previous group.
    found = Lookup(lookup.store).rows(
        "committed_offsets", _TABLE_COLUMNS, {**where, "in_coordinator_partition": [True]}
    )
    in_tables = {(row["topic"], row["partition"]): row for row in found}
    wanted = [
        place
        for place in in_tables.keys() | live.keys()
        if _is_wanted(place[0], where["topic"]) and _is_wanted(place[1], where["partition"])
    ]
    return [_row(group_id, place, in_tables.get(place), live.get(place)) for place in sorted(wanted)]


def _is_wanted(value: Any, wanted: Collection[Any] | None) -> bool:
    return not wanted or value in wanted


def _row(group_id: str, place: tuple[str, int], stored: Row | None, live: CommittedOffset | None) -> Row:
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
