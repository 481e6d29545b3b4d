"""``offsetstream groups``: the groups as the tables have them, in the words of Kafka's own tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli import describe as views
from offsetstream.cli.group_state import Group, add_members, add_offsets, read_groups
from offsetstream.cli.loading import tell_what_is_loading
from offsetstream.cli.options import cluster_options, output_of, output_options, tables_option
from offsetstream.cli.output import Column, Output, tell
from offsetstream.tables.location import TablesLocation
from offsetstream.tables.lookup import Lookup

if TYPE_CHECKING:
    from offsetstream.cluster.coordinators import CoordinatorLookup

Rows = list[dict[str, Any]]

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
    lookup = Lookup(TablesLocation.parse(tables))
    tell_what_is_loading(lookup, None)
    found = [
        group
        for group in read_groups(lookup, None)
        if (not state or group.row["state"] in state) and (not group_type or group.row["group_type"] in group_type)
    ]
    output.table(_LIST, [_list_row(group) for group in found if group.is_current or not output.is_text])


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
    lookup = Lookup(TablesLocation.parse(tables))
    wanted = None if all_groups else set(group)
    tell_what_is_loading(lookup, group)
    found = read_groups(lookup, wanted)
    add_members(lookup, found, wanted)
    if view == "offsets":
        add_offsets(lookup, found, wanted)
    columns, rows = _view(view, found, lookup, _cluster_of(lookup.location, bootstrap_server, command_config))
    _print(output, columns, list(zip(found, rows, strict=True)), verbose=verbose)
    missing = sorted(set(group) - {described.group_id for described in found})
    for group_id in missing:
        click.echo(err=not output.is_text)
        tell(f"Error: Consumer group '{group_id}' does not exist.", err=not output.is_text)
    if missing:
        click.get_current_context().exit(1)


def _view(
    view: str, found: list[Group], lookup: Lookup, cluster: CoordinatorLookup | None
) -> tuple[tuple[Column, ...], list[Rows]]:
    """Return the columns of the view, and each group's rows; ``cluster`` has what the tables do not have."""
    if view == "members":
        return views.MEMBERS, [views.member_rows(group) for group in found]
    if view == "state":
        partitions = lookup.rows("offsets_partitions", ["offsets_partition", "coordinator_id"])
        coordinators = {row["offsets_partition"]: row["coordinator_id"] for row in partitions}
        brokers = cluster.brokers() if cluster else {}
        addresses = {number: broker.address for number, broker in brokers.items()}
        return views.STATE, [[views.state_row(group, coordinators, addresses)] for group in found]
    ends = cluster.end_offsets(views.topic_partitions(found)) if cluster else {}
    return views.OFFSETS, [views.offset_rows(group, ends) for group in found]


def _cluster_of(
    location: TablesLocation, bootstrap_server: str | None, command_config: str | None
) -> CoordinatorLookup | None:
    if bootstrap_server is None:
        return None
    # Only here is the Kafka client needed, and its import takes time.
    from offsetstream.cli.own_cluster import own_cluster  # noqa: PLC0415 - only what is asked is imported

    return own_cluster(location, bootstrap_server, command_config)


def _print(output: Output, columns: tuple[Column, ...], found: list[tuple[Group, Rows]], *, verbose: bool) -> None:
    shown = [(group, rows) for group, rows in found if group.is_current]
    for group, _ in shown:
        _say_state(group)
    output.blocks(
        [column.name for column in columns],
        [row for _, rows in found for row in rows],
        [views.block(columns, rows, verbose=verbose) for _, rows in shown if rows],
    )


def _say_state(group: Group) -> None:
    """Write what Kafka's tool says of a state to stderr."""
    if group.row["state"] == "Empty":
        click.echo(err=True)
        tell(f"Consumer group '{group.group_id}' has no active members.")
    elif group.row["state"] in _REBALANCING:
        click.echo(err=True)
        tell(f"Warning: Consumer group '{group.group_id}' is rebalancing.")
