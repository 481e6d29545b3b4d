"""`offsetstream groups`: the groups as the tables have them, in the words of Kafka's own tool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli import describe as views
from offsetstream.cli.group_state import Group, read_groups
from offsetstream.cli.loading import tell_what_is_loading
from offsetstream.cli.options import cluster_options, config_option, output_of, output_options, tables_option
from offsetstream.cli.output import Column, Output, ReadAnew, tell
from offsetstream.tables.location import store_at
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.store import Store

if TYPE_CHECKING:
    from offsetstream.cluster.coordinators import CoordinatorLookup

Rows = list[dict[str, Any]]

_PART = 10_000  # rows of groups that are asked about together
_REBALANCING = {"Assigning", "Reconciling"}
_STATES = ("Empty", "Stable", "Assigning", "Reconciling", "NotReady")
_TYPES = ("Classic", "Consumer", "Share", "Streams")
_LIST = (
    Column("group", "GROUP", 15),
    Column("type", "TYPE", 20),
    Column("state", "STATE", 20),
    Column("protocol_type"),
    Column("is_simple"),
    Column("members"),
    Column("offsets_partition"),
    Column("in_coordinator_partition"),
)


@click.group()
def groups() -> None:
    """List and describe groups, from the tables."""


@groups.command(
    "list",
    epilog="""\b
Examples:
  offsetstream groups list
  offsetstream groups list --type Consumer --state Stable
  offsetstream groups list --output json --file groups.json""",
)
@config_option("groups.list")
@click.option(
    "--state",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only groups in this state; repeatable.",
)
@click.option(
    "--type",
    "group_type",
    envvar="OFFSETSTREAM_GROUPS_LIST_TYPE",
    multiple=True,
    type=click.Choice(_TYPES, case_sensitive=False),
    help="Only groups of this type; repeatable.",
)
@tables_option
@output_options
def list_groups(state: tuple[str, ...], group_type: tuple[str, ...], tables: str, **options: Any) -> None:
    """List the groups, with their type and state."""
    output = output_of(options)
    lookup = Lookup(store_at(tables))
    tell_what_is_loading(lookup, None)

    def rows() -> Iterator[dict[str, Any]]:
        for group in read_groups(lookup, None):
            wanted = (not state or group.row["state"] in state) and (
                not group_type or group.row["group_type"] in group_type
            )
            if wanted and (group.is_current or not output.is_text):
                yield _list_row(group)

    output.table(_LIST, ReadAnew(rows))


def _list_row(group: Group) -> dict[str, Any]:
    row = group.row
    return {
        "group": row["group_id"],
        "type": row["group_type"],
        # Brokers list newer types under a protocol type of the same name.
        "protocol_type": row["protocol_type"] if row["group_type"] == "Classic" else row["group_type"].lower(),
        "members": row["member_count"],
    } | {name: row[name] for name in ("state", "is_simple", "offsets_partition", "in_coordinator_partition")}


@groups.command(
    "describe",
    epilog="""\b
Examples:
  offsetstream groups describe --group my-group
  offsetstream groups describe --group my-group --bootstrap-server localhost:9092
  offsetstream groups describe --group a --group b --members --verbose
  offsetstream groups describe --all-groups --state --output csv

Exit code 1 where a group is not there.""",
)
@config_option("groups.describe")
@click.option("--group", multiple=True, metavar="GROUP", help="A group to describe; repeatable.")
@click.option("--all-groups", is_flag=True, help="Describe all groups.")
@click.option(
    "--offsets",
    "view",
    flag_value="offsets",
    default="offsets",
    help="Committed offsets and their owners (the default).",
)
@click.option("--members", "view", flag_value="members", help="Members and the number of their partitions.")
@click.option("--state", "view", flag_value="state", help="State, coordinator and number of members.")
@click.option("--verbose", is_flag=True, help="More columns: epochs and assignments.")
@cluster_options
@tables_option
@output_options
def describe_groups(
    *,
    group: tuple[str, ...],
    all_groups: bool,
    view: str,
    verbose: bool,
    bootstrap_server: str | None,
    command_config: str | None,
    tables: str,
    **options: Any,
) -> None:
    """Describe groups as 'kafka-consumer-groups --describe' does.

    LOG-END-OFFSET, LAG and a coordinator's address are not in the tables: they need --bootstrap-server.
    """
    if bool(group) == all_groups:
        raise click.UsageError("give --group, or --all-groups")
    output = output_of(options)
    lookup = Lookup(store_at(tables))
    wanted = None if all_groups else set(group)
    tell_what_is_loading(lookup, group)
    found = read_groups(lookup, wanted, members=True, offsets=view == "offsets")
    columns, rows = _view(view, lookup, _cluster_of(lookup.store, bootstrap_server, command_config))
    missing = set(group)
    _print(output, columns, _noted(_with_rows(found, rows), missing), verbose=verbose)
    for group_id in sorted(missing):
        click.echo(err=not output.is_text)
        tell(f"Error: Consumer group '{group_id}' does not exist.", err=not output.is_text)
    if missing:
        click.get_current_context().exit(1)


def _view(
    view: str, lookup: Lookup, cluster: CoordinatorLookup | None
) -> tuple[tuple[Column, ...], Callable[[list[Group]], list[Rows]]]:
    """Return the view's columns, and what makes each group's rows; `cluster` has what the tables do not have."""
    if view == "members":
        return views.MEMBERS, lambda found: [views.member_rows(group) for group in found]
    if view == "state":
        partitions = lookup.rows("offsets_partitions", ["offsets_partition", "coordinator_id"])
        coordinators = {row["offsets_partition"]: row["coordinator_id"] for row in partitions}
        brokers = cluster.brokers() if cluster else {}
        addresses = {number: broker.address for number, broker in brokers.items()}
        return views.STATE, lambda found: [[views.state_row(group, coordinators, addresses)] for group in found]
    ends: dict[views.TopicPartition, int] = {}

    def offset_rows(found: list[Group]) -> list[Rows]:
        unknown = views.topic_partitions(found) - ends.keys()
        if cluster and unknown:
            ends.update(cluster.end_offsets(unknown))
        return [views.offset_rows(group, ends) for group in found]

    return views.OFFSETS, offset_rows


def _with_rows(found: Iterator[Group], rows: Callable[[list[Group]], list[Rows]]) -> Iterator[tuple[Group, Rows]]:
    """Yield each group with its rows; the cluster is asked for what is in a part of them at a time."""
    part, size = list[Group](), 0
    for group in found:
        part.append(group)
        size += 1 + len(group.members) + len(group.assignments) + len(group.offsets)
        if size >= _PART:
            yield from zip(part, rows(part), strict=True)
            part, size = [], 0
    yield from zip(part, rows(part), strict=True)


def _noted(found: Iterator[tuple[Group, Rows]], missing: set[str]) -> Iterator[tuple[Group, Rows]]:
    """Yield what is found, and take it out of what is missing."""
    for group, rows in found:
        missing.discard(group.group_id)
        yield group, rows


def _cluster_of(store: Store, bootstrap_server: str | None, command_config: str | None) -> CoordinatorLookup | None:
    if bootstrap_server is None:
        return None
    # Only here is the Kafka client needed, and its import takes time.
    from offsetstream.cli.own_cluster import own_cluster  # noqa: PLC0415 - only what is asked is imported

    return own_cluster(store, bootstrap_server, command_config)


def _print(output: Output, columns: tuple[Column, ...], found: Iterator[tuple[Group, Rows]], *, verbose: bool) -> None:
    said = _said(found)
    if output.is_text:
        shown = (rows for group, rows in said if group.is_current and rows)
        output.blocks(views.block(columns, rows, verbose=verbose) for rows in shown)
    else:
        output.table(columns, (row for _, rows in said for row in rows))


def _said(found: Iterator[tuple[Group, Rows]]) -> Iterator[tuple[Group, Rows]]:
    """Say the state of each group before its rows."""
    for group, rows in found:
        if group.is_current:
            _say_state(group)
        yield group, rows


def _say_state(group: Group) -> None:
    """Write what Kafka's tool says of a state to stderr."""
    if group.row["state"] == "Empty":
        click.echo(err=True)
        tell(f"Consumer group '{group.group_id}' has no active members.")
    elif group.row["state"] in _REBALANCING:
        click.echo(err=True)
        tell(f"Warning: Consumer group '{group.group_id}' is rebalancing.")
