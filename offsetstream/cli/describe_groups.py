"""`offsetstream groups describe`: groups as Kafka's own tool shows them, now and at any instant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli import describe as views
from offsetstream.cli.answers import at_option, reader_of
from offsetstream.cli.group_state import Group, read_groups
from offsetstream.cli.loading import tell_what_is_loading
from offsetstream.cli.main import OneLineErrors
from offsetstream.cli.missing import not_there, unknown_text, unknown_then
from offsetstream.cli.options import cluster_options, config_option, output_of, output_options, tables_option
from offsetstream.cli.output import Closing, Output
from offsetstream.cli.rows import Column
from offsetstream.cli.sampled_ends import SampledEnds
from offsetstream.cli.tell import tell, tell_all
from offsetstream.tables.location import store_at
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.store import Store

if TYPE_CHECKING:
    from offsetstream.cluster.coordinators import CoordinatorLookup

Rows = list[dict[str, Any]]
Part = list[tuple[Group, Rows]]

_PART = 10_000  # rows of groups that are asked about together
_REBALANCING = {"Assigning", "Reconciling"}


@click.command(
    "describe",
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream groups describe --group my-group
  offsetstream groups describe --group my-group --bootstrap-server localhost:9092
  offsetstream groups describe --group a --group b --members --verbose
  offsetstream groups describe --all-groups --state --output csv
  offsetstream groups describe --group my-group --at 03:00

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
@at_option
@cluster_options
@tables_option
@output_options
def describe_groups(
    *,
    group: tuple[str, ...],
    all_groups: bool,
    view: str,
    verbose: bool,
    at: datetime | None,
    bootstrap_server: str | None,
    command_config: str | None,
    tables: str,
    **options: Any,
) -> None:
    """Describe groups as 'kafka-consumer-groups --describe' does.

    LOG-END-OFFSET and LAG are by the ends that the job sampled or, with --bootstrap-server, as of now. A coordinator's
    address is not in the tables: it needs --bootstrap-server. With --at no cluster is asked.
    """
    if bool(group) == all_groups:
        raise click.UsageError("give --group, or --all-groups")
    output = output_of(options)
    if at is not None:
        _describe_then(output, tables, group, at, view, verbose=verbose)
        return
    lookup = Lookup(store_at(tables))
    wanted = None if all_groups else set(group)
    tell_what_is_loading(lookup, group)
    found = read_groups(lookup, wanted, members=True, offsets=view == "offsets")
    cluster = _cluster_of(lookup.store, bootstrap_server, command_config)
    sampled = SampledEnds(lookup)
    columns, rows = _view(view, lookup, cluster, sampled)
    missing = set(group)
    shown = _noted(_with_rows(found, rows), missing)
    _print(output, columns, shown, verbose=verbose, closing=sampled.closing)
    _tell_missing(output, missing)


# Of each view its columns, and what makes the rows of a group that was, by the ends of then.
_THEN: dict[str, tuple[tuple[Column, ...], Callable[[Group, dict[views.TopicPartition, int]], Rows]]] = {
    "offsets": (views.OFFSETS, views.offset_rows),
    "members": (views.MEMBERS, lambda group, _: views.member_rows(group)),
    "state": (views.STATE, lambda group, _: [views.state_row(group, {}, {})]),
}


def _describe_then(
    output: Output, tables: str, group: tuple[str, ...], at: datetime, view: str, *, verbose: bool
) -> None:
    """Describe the groups as they were at an instant, and say of those that were not there what is known."""
    from offsetstream.cli.describe_at import closing_at, ends_at, groups_at  # noqa: PLC0415 - of DuckDB and Arrow

    reader = reader_of(tables, at, group)
    found = list(groups_at(reader, group))
    ends, sampled = ends_at(reader, found) if view == "offsets" else ({}, None)
    columns, rows_of = _THEN[view]
    closing = closing_at(at, found, sampled) + unknown_text(reader)
    if found or not group or not output.is_text:
        _print(output, columns, ([(group, rows_of(group, ends))] for group in found), verbose=verbose, closing=closing)
    there = {group.group_id for group in found}
    missing = unknown_then(reader, at, group, there) or [
        next(iter(not_there(reader, "group_id", [name], ())), f"group '{name}' was not there then")
        for name in sorted(set(group) - there)
    ]
    for message in missing:
        tell(f"Error: {message}")
    click.get_current_context().exit(1 if missing else 0)


def _tell_missing(output: Output, missing: set[str]) -> None:
    for group_id in sorted(missing):
        click.echo(err=not output.is_text)
        tell(f"Error: Consumer group '{group_id}' does not exist.", err=not output.is_text)
    if missing:
        click.get_current_context().exit(1)


def _view(
    view: str, lookup: Lookup, cluster: CoordinatorLookup | None, sampled: SampledEnds
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
        of_found = ends if cluster else sampled.ends(views.topic_partitions(found))
        return [views.offset_rows(group, of_found, clamped=cluster is None) for group in found]

    return views.OFFSETS, offset_rows


def _with_rows(found: Iterator[Group], rows: Callable[[list[Group]], list[Rows]]) -> Iterator[Part]:
    """Yield groups with their rows, some at a time; the cluster is asked for what is in them together."""
    part, size = list[Group](), 0
    for group in found:
        part.append(group)
        size += 1 + len(group.members) + len(group.assignments) + len(group.offsets)
        if size >= _PART:
            yield [*zip(part, rows(part), strict=True)]
            part, size = [], 0
    yield [*zip(part, rows(part), strict=True)]


def _noted(parts: Iterator[Part], missing: set[str]) -> Iterator[Part]:
    """Yield what is found, and take it out of what is missing."""
    for part in parts:
        missing.difference_update(group.group_id for group, _ in part)
        yield part


def _cluster_of(store: Store, bootstrap_server: str | None, command_config: str | None) -> CoordinatorLookup | None:
    if bootstrap_server is None:
        return None
    # Only here is the Kafka client needed, and its import takes time.
    from offsetstream.cli.own_cluster import own_cluster  # noqa: PLC0415 - only what is asked is imported

    return own_cluster(store, bootstrap_server, command_config)


def _print(
    output: Output,
    columns: tuple[Column, ...],
    parts: Iterator[Part],
    *,
    verbose: bool,
    closing: Closing,
) -> None:
    said = _said(parts)
    if output.is_text:
        shown = (rows for group, rows in said if group.is_current and rows)
        output.blocks((views.block(columns, rows, verbose=verbose) for rows in shown), closing=closing)
        return
    output.table(columns, (row for _, rows in said for row in rows), closing=closing)


def _said(parts: Iterator[Part]) -> Iterator[tuple[Group, Rows]]:
    """Yield the groups one by one, once the states of those in their part are said."""
    for part in parts:
        tell_all(chain.from_iterable(("", state) for group, _ in part if (state := _state(group))))
        yield from part


def _state(group: Group) -> str | None:
    """Return what Kafka's tool says of a state on stderr, if anything."""
    if not group.is_current:
        return None
    if group.row["state"] == "Empty":
        return f"Consumer group '{group.group_id}' has no active members."
    if group.row["state"] in _REBALANCING:
        return f"Warning: Consumer group '{group.group_id}' is rebalancing."
    return None
