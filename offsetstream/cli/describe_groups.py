"""`offsetstream groups describe`: groups as Kafka's own tool shows them, now or at a past time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import compress, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli import describe as views
from offsetstream.cli.age import Age
from offsetstream.cli.answers import at_option, named_group_options, open_reader, require_groups
from offsetstream.cli.describe_offsets import offset_columns, topic_partitions
from offsetstream.cli.failures import OneLineErrors
from offsetstream.cli.group_state import Group, GroupBatch, read_batches
from offsetstream.cli.live_options import UNREACHABLE, is_unreachable
from offsetstream.cli.loading import warn_if_loading
from offsetstream.cli.messages import print_line, print_lines
from offsetstream.cli.names import expand, missing_messages, unknown_past_messages, unknown_text
from offsetstream.cli.options import (
    cluster_options,
    config_option,
    max_age_option,
    output_of,
    row_options,
    tables_option,
)
from offsetstream.cli.output import Blocks, Closing, Column, Output, RereadParts, merge_blocks
from offsetstream.cli.sampled_end_offsets import SampledEndOffsets
from offsetstream.in_parts import in_parts
from offsetstream.tables.location import store_at
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.store import Store

if TYPE_CHECKING:
    from offsetstream.cluster.coordinators import CoordinatorLookup
    from offsetstream.cluster.log_ends import LogEnds
    from offsetstream.views.reader import ViewReader

Rows = list[dict[str, Any]]

_ROWS_PER_REQUEST = 10_000  # the cluster returns the ends of so many rows together
_REBALANCING = "Warning: Consumer group '{}' is rebalancing."
_STATE_WARNINGS = {
    "Empty": "Consumer group '{}' has no active members.",
    "Assigning": _REBALANCING,
    "Reconciling": _REBALANCING,
}
_VIEWS = {"--offsets", "--members", "--state"}


class OneView(OneLineErrors):
    """A command that shows exactly one view, as Kafka's tool does; click would silently ignore a second one."""

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

LOG-END-OFFSET is the end that the job sampled or, with --bootstrap-server, the end now. LAG is LOG-END-OFFSET minus
CURRENT-OFFSET, as in Kafka's tool ('offsetstream lag' counts readable messages only). NOTE says why an end is unknown.
The address of a coordinator needs --bootstrap-server. ASSIGNMENT-STRATEGY is - if the broker chose the assignor.

Exit codes: 1 a group does not exist; 3 a partition has no leader, or its leader does not answer.""",
)
@config_option("groups.describe")
@named_group_options
@click.option(
    "--offsets",
    "view",
    flag_value="offsets",
    default="offsets",
    help="Show committed offsets and their owners (the default view).",
)
@click.option("--members", "view", flag_value="members", help="Show members and the number of their partitions.")
@click.option("--state", "view", flag_value="state", help="Show state, coordinator and number of members.")
@click.option("--verbose", is_flag=True, help="Add columns: epochs and assignments.")
@at_option
@max_age_option
@cluster_options
@tables_option
@row_options
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
    """Describe groups as 'kafka-consumer-groups --describe' does, now or at a past time."""
    require_groups(group, all_groups)
    output, store = output_of(options), store_at(tables)
    group = expand(store, "group_id", group)
    if at is not None:
        _describe_at(output, open_reader(tables, at, group, max_age=max_age), group, at, view, verbose=verbose)
        return
    lookup = Lookup(store)
    wanted = None if all_groups else set(group)
    warn_if_loading(lookup, group)
    age = Age.of_tables(lookup.store, max_age)
    age.warn_about_groups(lookup.store, group)
    found = read_batches(lookup, wanted, members=True, offsets=view == "offsets")
    missing, is_silent = set(group), False
    as_of = age.line_if_old(lookup.store, group) if output.is_text else None
    shown = _noted(found, missing)
    if view == "offsets":
        ends = _Ends(_log_ends(lookup.store, bootstrap_server, command_config), SampledEndOffsets(lookup))
        _print_offsets(output, shown, ends, age, as_of, verbose=verbose)
        is_silent = ends.is_silent
    else:
        columns, rows_of = _view(view, lookup, _coordinators(lookup.store, bootstrap_server, command_config))
        groups = ((each, rows_of(each)) for batch in _warned(shown) for each in batch.each())
        _print(output, columns, groups, age, verbose=verbose, closing=as_of)
    _tell_missing(output, missing, exit_code=UNREACHABLE if is_silent else 0)


# For each view: its columns, and the function that makes the rows of a past group from past end offsets.
_PAST_VIEWS: dict[str, tuple[tuple[Column, ...], Callable[[Group, dict[views.TopicPartition, views.End]], Rows]]] = {
    "offsets": (views.OFFSETS, views.offset_rows),
    "members": (views.MEMBERS, lambda group, _: views.member_rows(group)),
    "state": (views.STATE, lambda group, _: [views.state_row(group, {}, {})]),
}


def _describe_at(
    output: Output, reader: ViewReader, group: tuple[str, ...], at: datetime, view: str, *, verbose: bool
) -> None:
    """Describe the groups as they were at a past time; report groups that did not exist, or are unknown."""
    from offsetstream.cli.describe_at import closing_at, ends_at, groups_at  # noqa: PLC0415 - imports DuckDB

    age = Age.of(reader)
    found = list(groups_at(reader, group))
    age.warn({each.row["offsets_partition"] for each in found} or None)
    ends, sampled = ends_at(reader, found) if view == "offsets" else ({}, None)
    columns, rows_of = _PAST_VIEWS[view]
    closing = closing_at(at, age.as_of_text(reader.store, group), found, sampled) + unknown_text(reader)
    if found or not group or not output.is_text:
        _tell_states((group.group_id, group.row["state"]) for group in found if group.is_current)
        _print(
            output, columns, ((group, rows_of(group, ends)) for group in found), age, verbose=verbose, closing=closing
        )
    found_ids = {group.group_id for group in found}
    missing = unknown_past_messages(reader, at, group, found_ids) or [
        next(iter(missing_messages(reader, "group_id", [name], (), at)), f"group '{name}' did not exist at that time")
        for name in sorted(set(group) - found_ids)
    ]
    for message in missing:
        print_line(f"Error: {message}")
    click.get_current_context().exit(1 if missing else 0)


def _tell_missing(output: Output, missing: set[str], exit_code: int) -> None:
    for group_id in sorted(missing):
        click.echo(err=not output.is_text)
        print_line(f"Error: Consumer group '{group_id}' does not exist.", err=not output.is_text)
    click.get_current_context().exit(exit_code or (1 if missing else 0))


def _view(
    view: str, lookup: Lookup, cluster: CoordinatorLookup | None
) -> tuple[tuple[Column, ...], Callable[[Group], Rows]]:
    """Return the view's columns, and the function that makes a group's rows; `cluster` gives broker addresses."""
    if view == "members":
        return views.MEMBERS, views.member_rows
    partitions = lookup.rows("offsets_partitions", ["offsets_partition", "coordinator_id"])
    coordinators = {row["offsets_partition"]: row["coordinator_id"] for row in partitions}
    brokers = cluster.brokers() if cluster else {}
    addresses = {number: broker.address for number, broker in brokers.items()}
    return views.STATE, lambda group: [views.state_row(group, coordinators, addresses)]


class _Ends:
    """End offsets: from the live cluster if there is one, else as sampled by the job."""

    def __init__(self, cluster: LogEnds | None, sampled: SampledEndOffsets) -> None:
        self._cluster, self._sampled = cluster, sampled
        self._known: dict[views.TopicPartition, views.End] = {}

    def of(self, places: set[views.TopicPartition]) -> Mapping[views.TopicPartition, views.End]:
        """Return the end offset of each partition, or Kafka's name of the error."""
        if self._cluster is None:
            return self._sampled.ends(places)
        if unknown := places - self._known.keys():
            self._known.update(_live_ends(self._cluster, unknown))
        return self._known

    @property
    def is_silent(self) -> bool:
        """Whether a requested partition had no leader, or its leader did not answer."""
        return any(isinstance(end, str) and is_unreachable(end) for end in self._known.values())

    @property
    def are_live(self) -> bool:
        return self._cluster is not None

    def closing(self) -> str | None:
        """Return the sentence about when the end offsets were sampled."""
        return self._sampled.closing()


def _live_ends(cluster: LogEnds, places: Iterable[views.TopicPartition]) -> dict[views.TopicPartition, views.End]:
    """Return the end offsets now. Raises UnauthorisedError without DESCRIBE on one of the topics."""
    from offsetstream.cluster.log_ends import HIDDEN, LogEnd  # noqa: PLC0415 - imported on use
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
    found: Iterator[GroupBatch], ends: _Ends
) -> Iterator[tuple[GroupBatch, Mapping[views.TopicPartition, views.End]]]:
    """Yield the groups with their end offsets; one request to the cluster serves thousands of rows."""
    for part in in_parts(found, _ROWS_PER_REQUEST, attrgetter("size")):
        known = ends.of(set[views.TopicPartition]().union(*map(topic_partitions, part)))
        yield from zip(_warned(part), repeat(known))


def _noted(found: Iterator[GroupBatch], missing: set[str]) -> Iterator[GroupBatch]:
    """Yield the groups, and remove them from `missing`."""
    for batch in found:
        missing.difference_update(batch.groups.columns["group_id"])
        yield batch


def _warned(found: Iterable[GroupBatch]) -> Iterator[GroupBatch]:
    """Yield the groups after the warnings about their states: a failure before that prints its error only."""
    for batch in found:
        facts = zip(*(batch.groups.columns[name] for name in ("group_id", "state")), strict=True)
        _tell_states(compress(facts, batch.are_current))
        yield batch


def _tell_states(groups: Iterable[tuple[str, str]]) -> None:
    """Write to stderr what Kafka's tool says about the states of groups."""
    print_lines([_STATE_WARNINGS[state].format(group_id) for group_id, state in groups if state in _STATE_WARNINGS])


# Only these need the Kafka client, whose import takes time.
def _log_ends(store: Store, bootstrap_server: str | None, command_config: str | None) -> LogEnds | None:
    if bootstrap_server is None:
        return None
    from offsetstream.cli.own_cluster import connect_to_tables_cluster  # noqa: PLC0415 - imported on use
    from offsetstream.cluster.log_ends import LogEnds  # noqa: PLC0415 - likewise

    return connect_to_tables_cluster(LogEnds, store, bootstrap_server, command_config)


def _coordinators(store: Store, bootstrap_server: str | None, command_config: str | None) -> CoordinatorLookup | None:
    if bootstrap_server is None:
        return None
    from offsetstream.cli.own_cluster import connect_to_tables_cluster  # noqa: PLC0415 - imported on use
    from offsetstream.cluster.coordinators import CoordinatorLookup  # noqa: PLC0415 - likewise

    return connect_to_tables_cluster(CoordinatorLookup, store, bootstrap_server, command_config)


def _print_offsets(
    output: Output, found: Iterator[GroupBatch], ends: _Ends, age: Age, as_of: str | None, *, verbose: bool
) -> None:
    def closing() -> str | None:
        return " ".join(filter(None, (ends.closing(), as_of))) or None

    parts = (
        offset_columns(batch, known, clamped=not ends.are_live, as_text=output.is_text)
        for batch, known in _with_ends(found, ends)
    )
    if output.is_text:
        columns = views.shown(views.OFFSETS, verbose=verbose)
        as_kafka = [column for column in columns if column.name != "note"]
        blocks = (
            Blocks(columns if any(values["note"]) else as_kafka, values, [size for size in sizes if size])
            for values, sizes in parts
        )
        output.blocks(blocks, closing=closing)
    else:
        output.table(views.OFFSETS, RereadParts(lambda: (age.columns(values) for values, _ in parts)), closing=closing)


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
        output.blocks(merge_blocks(views.block(columns, rows, verbose=verbose) for rows in shown), closing=closing)
        return
    output.table(columns, (age.row(row) for _, rows in groups for row in rows), closing=closing)
