"""`offsetstream groups describe`: groups as Kafka's own tool shows them, now and at any instant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import compress, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli import describe as views
from offsetstream.cli.age import Age
from offsetstream.cli.answers import at_option, reader_of
from offsetstream.cli.describe_offsets import offset_columns, topic_partitions
from offsetstream.cli.group_state import Group, SomeGroups, read_some
from offsetstream.cli.live_options import UNREACHABLE, is_unreachable
from offsetstream.cli.loading import tell_what_is_loading
from offsetstream.cli.main import OneLineErrors
from offsetstream.cli.missing import not_there, unknown_text, unknown_then
from offsetstream.cli.options import (
    cluster_options,
    config_option,
    max_age_option,
    output_of,
    output_options,
    tables_option,
)
from offsetstream.cli.output import Closing, Output
from offsetstream.cli.rows import Blocks, Column, ReadInParts, together
from offsetstream.cli.sampled_ends import SampledEnds
from offsetstream.cli.tell import tell, tell_apart
from offsetstream.in_parts import in_parts
from offsetstream.tables.location import store_at
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.store import Store

if TYPE_CHECKING:
    from offsetstream.cluster.coordinators import CoordinatorLookup
    from offsetstream.cluster.log_ends import LogEnds
    from offsetstream.views.reader import ViewReader

Rows = list[dict[str, Any]]

_ASKED_TOGETHER = 10_000  # rows of groups
_REBALANCING = "Warning: Consumer group '{}' is rebalancing."
_SAID = {
    "Empty": "Consumer group '{}' has no active members.",
    "Assigning": _REBALANCING,
    "Reconciling": _REBALANCING,
}
_VIEWS = {"--offsets", "--members", "--state"}


class OneView(OneLineErrors):
    """A command that shows one view, as Kafka's tool does: of several, one would be left out without a word."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options."""
        if len(_VIEWS & set(args)) > 1:
            raise click.UsageError(f"give one of {', '.join(sorted(_VIEWS))}", ctx)
        return super().parse_args(ctx, args)


@click.command(
    "describe",
    cls=OneView,
    epilog="""\b
Examples:
  offsetstream groups describe --group my-group
  offsetstream groups describe --group my-group --bootstrap-server localhost:9092
  offsetstream groups describe --group a --group b --members --verbose
  offsetstream groups describe --all-groups --state --output csv
  offsetstream groups describe --group my-group --at 03:00

LAG is that of Kafka's own tool, from CURRENT-OFFSET to LOG-END-OFFSET. The command lag leaves out what nobody can read.
NOTE says why an end is not known, where there is such a partition.

Exit code 1 where a group is not there; 3 where a partition has no leader, or a silent one.""",
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
@max_age_option
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
    max_age: float | None,
    bootstrap_server: str | None,
    command_config: str | None,
    tables: str,
    **options: Any,
) -> None:
    """Describe groups as 'kafka-consumer-groups --describe' does.

    LOG-END-OFFSET and LAG are by the ends that the job sampled or, with --bootstrap-server, as of now. A coordinator's
    address is not in the tables: it needs --bootstrap-server. With --at no cluster is asked. ASSIGNMENT-STRATEGY is -
    where the members of a consumer group leave it to the broker, whose choice no record has.
    """
    if bool(group) == all_groups:
        raise click.UsageError("give --group, or --all-groups")
    output = output_of(options)
    if at is not None:
        _describe_then(output, reader_of(tables, at, group, max_age=max_age), group, at, view, verbose=verbose)
        return
    lookup = Lookup(store_at(tables))
    wanted = None if all_groups else set(group)
    tell_what_is_loading(lookup, group)
    age = Age.of_tables(lookup.store, max_age)
    age.tell_of_groups(lookup.store, group)
    found = read_some(lookup, wanted, members=True, offsets=view == "offsets")
    missing, is_silent = set(group), False
    shown = _noted(found, missing)
    if view == "offsets":
        ends = _Ends(_log_ends(lookup.store, bootstrap_server, command_config), SampledEnds(lookup))
        _print_offsets(output, shown, ends, age, verbose=verbose)
        is_silent = ends.is_silent
    else:
        columns, rows_of = _view(view, lookup, _coordinators(lookup.store, bootstrap_server, command_config))
        groups = ((each, rows_of(each)) for some in _told(shown) for each in some.each())
        _print(output, columns, groups, age, verbose=verbose)
    _tell_missing(output, missing, exit_code=UNREACHABLE if is_silent else 0)


# Of each view its columns, and what makes the rows of a group that was, by the ends of then.
_THEN: dict[str, tuple[tuple[Column, ...], Callable[[Group, dict[views.TopicPartition, views.End]], Rows]]] = {
    "offsets": (views.OFFSETS, views.offset_rows),
    "members": (views.MEMBERS, lambda group, _: views.member_rows(group)),
    "state": (views.STATE, lambda group, _: [views.state_row(group, {}, {})]),
}


def _describe_then(
    output: Output, reader: ViewReader, group: tuple[str, ...], at: datetime, view: str, *, verbose: bool
) -> None:
    """Describe the groups as they were at an instant, and say of those that were not there what is known."""
    from offsetstream.cli.describe_at import closing_at, ends_at, groups_at  # noqa: PLC0415 - of DuckDB and Arrow

    age = Age.of(reader)
    found = list(groups_at(reader, group))
    age.tell({each.row["offsets_partition"] for each in found} or None)
    ends, sampled = ends_at(reader, found) if view == "offsets" else ({}, None)
    columns, rows_of = _THEN[view]
    closing = closing_at(at, found, sampled) + unknown_text(reader)
    if found or not group or not output.is_text:
        _tell_states((group.group_id, group.row["state"]) for group in found if group.is_current)
        _print(
            output, columns, ((group, rows_of(group, ends)) for group in found), age, verbose=verbose, closing=closing
        )
    there = {group.group_id for group in found}
    missing = unknown_then(reader, at, group, there) or [
        next(iter(not_there(reader, "group_id", [name], (), at)), f"group '{name}' was not there then")
        for name in sorted(set(group) - there)
    ]
    for message in missing:
        tell(f"Error: {message}")
    click.get_current_context().exit(1 if missing else 0)


def _tell_missing(output: Output, missing: set[str], exit_code: int) -> None:
    for group_id in sorted(missing):
        click.echo(err=not output.is_text)
        tell(f"Error: Consumer group '{group_id}' does not exist.", err=not output.is_text)
    click.get_current_context().exit(exit_code or (1 if missing else 0))


def _view(
    view: str, lookup: Lookup, cluster: CoordinatorLookup | None
) -> tuple[tuple[Column, ...], Callable[[Group], Rows]]:
    """Return the view's columns, and what makes a group's rows; `cluster` has what the tables do not have."""
    if view == "members":
        return views.MEMBERS, views.member_rows
    partitions = lookup.rows("offsets_partitions", ["offsets_partition", "coordinator_id"])
    coordinators = {row["offsets_partition"]: row["coordinator_id"] for row in partitions}
    brokers = cluster.brokers() if cluster else {}
    addresses = {number: broker.address for number, broker in brokers.items()}
    return views.STATE, lambda group: [views.state_row(group, coordinators, addresses)]


class _Ends:
    """Where logs end: of the cluster, if there is one, else as sampled."""

    def __init__(self, cluster: LogEnds | None, sampled: SampledEnds) -> None:
        self._cluster, self._sampled = cluster, sampled
        self._known: dict[views.TopicPartition, views.End] = {}

    def of(self, places: set[views.TopicPartition]) -> Mapping[views.TopicPartition, views.End]:
        """Return the ends of those that are known, and by Kafka's name why others are not."""
        if self._cluster is None:
            return self._sampled.ends(places)
        if unknown := places - self._known.keys():
            self._known.update(_live_ends(self._cluster, unknown))
        return self._known

    @property
    def is_silent(self) -> bool:
        """Whether nobody answered for a partition that was asked for."""
        return any(isinstance(end, str) and is_unreachable(end) for end in self._known.values())

    @property
    def are_live(self) -> bool:
        return self._cluster is not None

    @property
    def closing(self) -> Closing:
        return self._sampled.closing


def _live_ends(cluster: LogEnds, places: Iterable[views.TopicPartition]) -> dict[views.TopicPartition, views.End]:
    """Return where the logs end now; UnauthorisedError without DESCRIBE on one of the topics."""
    from offsetstream.cluster.log_ends import HIDDEN, LogEnd  # noqa: PLC0415 - only what is asked is imported
    from offsetstream.cluster.rights import describe_each  # noqa: PLC0415 - likewise

    wanted: dict[str, set[int]] = {}
    for topic, number in places:
        wanted.setdefault(topic, set()).add(number)
    found = cluster.ends(wanted, {})
    ends: dict[views.TopicPartition, views.End] = {
        place: end.high_watermark if isinstance(end, LogEnd) else end.error for place, end in found.items()
    }
    if hidden := {topic for (topic, _), end in ends.items() if end == HIDDEN}:
        raise cluster.lacks(describe_each("topic", hidden))
    return ends


def _with_ends(
    found: Iterator[SomeGroups], ends: _Ends
) -> Iterator[tuple[SomeGroups, Mapping[views.TopicPartition, views.End]]]:
    """Yield the groups with what is known of ends; the cluster is asked for those of thousands of rows together."""
    for part in in_parts(found, _ASKED_TOGETHER, attrgetter("size")):
        known = ends.of(set[views.TopicPartition]().union(*map(topic_partitions, part)))
        yield from zip(_told(part), repeat(known))


def _noted(found: Iterator[SomeGroups], missing: set[str]) -> Iterator[SomeGroups]:
    """Yield what is found, and take it out of what is missing."""
    for some in found:
        missing.difference_update(some.groups.columns["group_id"])
        yield some


def _told(found: Iterable[SomeGroups]) -> Iterator[SomeGroups]:
    """Yield the groups once their states are said: after what may fail, whose error is all that is said then."""
    for some in found:
        facts = zip(*(some.groups.columns[name] for name in ("group_id", "state")), strict=True)
        _tell_states(compress(facts, some.are_current))
        yield some


def _tell_states(groups: Iterable[tuple[str, str]]) -> None:
    """Say what Kafka's tool says of the states of groups on stderr, if anything."""
    tell_apart([_SAID[state].format(group_id) for group_id, state in groups if state in _SAID])


# Only in these is the Kafka client needed, and its import takes time.
def _log_ends(store: Store, bootstrap_server: str | None, command_config: str | None) -> LogEnds | None:
    if bootstrap_server is None:
        return None
    from offsetstream.cli.own_cluster import own_cluster  # noqa: PLC0415 - only what is asked is imported
    from offsetstream.cluster.log_ends import LogEnds  # noqa: PLC0415 - likewise

    return own_cluster(LogEnds, store, bootstrap_server, command_config)


def _coordinators(store: Store, bootstrap_server: str | None, command_config: str | None) -> CoordinatorLookup | None:
    if bootstrap_server is None:
        return None
    from offsetstream.cli.own_cluster import own_cluster  # noqa: PLC0415 - only what is asked is imported
    from offsetstream.cluster.coordinators import CoordinatorLookup  # noqa: PLC0415 - likewise

    return own_cluster(CoordinatorLookup, store, bootstrap_server, command_config)


def _print_offsets(output: Output, found: Iterator[SomeGroups], ends: _Ends, age: Age, *, verbose: bool) -> None:
    parts = (
        offset_columns(some, known, clamped=not ends.are_live, as_text=output.is_text)
        for some, known in _with_ends(found, ends)
    )
    if output.is_text:
        columns = views.shown(views.OFFSETS, verbose=verbose)
        as_kafka = [column for column in columns if column.name != "note"]
        blocks = (
            Blocks(columns if any(values["note"]) else as_kafka, values, [size for size in sizes if size])
            for values, sizes in parts
        )
        output.blocks(blocks, closing=ends.closing)
    else:
        output.table(
            views.OFFSETS, ReadInParts(lambda: (age.columns(values) for values, _ in parts)), closing=ends.closing
        )


def _print(
    output: Output,
    columns: tuple[Column, ...],
    groups: Iterable[tuple[Group, Rows]],
    age: Age,
    *,
    verbose: bool,
    closing: Closing = None,
) -> None:
    if output.is_text:
        shown = (rows for group, rows in groups if group.is_current and rows)
        output.blocks(together(views.block(columns, rows, verbose=verbose) for rows in shown), closing=closing)
        return
    output.table(columns, (age.row(row) for _, rows in groups for row in rows), closing=closing)
