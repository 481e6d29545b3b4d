"""`offsetstream groups describe`: groups as Kafka's own tool shows them (8.4), now or at a past time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, compress, repeat
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.age import AGE, Age, SampledEndOffsets, warn_if_loading
from offsetstream.cli.answers import (
    Row,
    at_option,
    ends_of,
    ends_text,
    fetch_sorted,
    named_group_options,
    open_reader,
    require_groups,
    table_of,
)
from offsetstream.cli.failures import OneLineErrors
from offsetstream.cli.group_state import Group, GroupBatch, read_batches
from offsetstream.cli.names import expand, missing_messages, unknown_past_messages, unknown_text
from offsetstream.cli.options import (
    UNREACHABLE,
    cluster_options,
    config_option,
    connect_to_tables_cluster,
    is_unreachable,
    max_age_option,
    output_of,
    row_options,
    tables_option,
)
from offsetstream.cli.output import Block, Blocks, Closing, Column, Output, RereadParts, merge_blocks
from offsetstream.cli.text import capitalized, counted, print_line, print_lines
from offsetstream.cluster.answers import no_offset
from offsetstream.in_parts import in_parts
from offsetstream.tables.location import store_at
from offsetstream.tables.store import Store

if TYPE_CHECKING:
    from offsetstream.cluster.coordinators import CoordinatorLookup
    from offsetstream.cluster.log_ends import LogEnds
    from offsetstream.tables.lookup import Lookup
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
@config_option("groups.describe", is_lookup=True)
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
    asked, group = group, expand(store, "group_id", group, past=at is not None)
    exact = set(asked) & set(group)
    if at is not None:
        reader = open_reader(tables, at, group, max_age=max_age)
        _describe_at(output, reader, group, exact, at, view, verbose=verbose)
        return
    from offsetstream.tables.lookup import Lookup  # noqa: PLC0415 - imports DuckDB, which --help does not need

    lookup = Lookup(store)
    wanted = None if all_groups else set(group)
    warn_if_loading(lookup, group)
    age = Age.of_tables(lookup.store, max_age)
    age.warn_about_groups(lookup.store, group)
    found = read_batches(lookup, wanted, members=True, offsets=view == "offsets")
    missing, is_silent = exact, False
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


def _describe_at(
    output: Output,
    reader: ViewReader,
    group: tuple[str, ...],
    exact: Collection[str],
    at: datetime,
    view: str,
    *,
    verbose: bool,
) -> None:
    """Describe the groups as they were at a past time; report groups that did not exist, or are unknown."""
    age = Age.of(reader)
    found = list(groups_at(reader, group))
    age.warn({each.row["offsets_partition"] for each in found} or None)
    ends, sampled = ends_at(reader, found) if view == "offsets" else ({}, None)
    past_views: dict[str, tuple[tuple[Column, ...], Callable[[Group], Rows]]] = {
        "offsets": (OFFSETS, lambda group: offset_rows(group, ends)),
        "members": (MEMBERS, member_rows),
        "state": (STATE, lambda group: [state_row(group, {}, {})]),
    }
    columns, rows_of = past_views[view]
    closing = closing_at(at, age.as_of_text(reader.store, group), found, sampled) + unknown_text(reader)
    if found or not group or not output.is_text:
        _tell_states((group.group_id, group.row["state"]) for group in found if group.is_current)
        _print(output, columns, ((group, rows_of(group)) for group in found), age, verbose=verbose, closing=closing)
    found_ids = {group.group_id for group in found}
    missing = unknown_past_messages(reader, at, exact, found_ids) or [
        next(iter(missing_messages(reader, "group_id", [name], (), at)), f"group '{name}' did not exist at that time")
        for name in sorted(set(exact) - found_ids)
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
        return MEMBERS, member_rows
    partitions = lookup.rows("offsets_partitions", ["offsets_partition", "coordinator_id"])
    coordinators = {row["offsets_partition"]: row["coordinator_id"] for row in partitions}
    brokers = cluster.brokers() if cluster else {}
    addresses = {number: broker.address for number, broker in brokers.items()}
    return STATE, lambda group: [state_row(group, coordinators, addresses)]


class _Ends:
    """End offsets: from the live cluster if there is one, else as sampled by the job."""

    def __init__(self, cluster: LogEnds | None, sampled: SampledEndOffsets) -> None:
        self._cluster, self._sampled = cluster, sampled
        self._known: dict[TopicPartition, End] = {}

    def of(self, places: set[TopicPartition]) -> Mapping[TopicPartition, End]:
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


def _live_ends(cluster: LogEnds, places: Iterable[TopicPartition]) -> dict[TopicPartition, End]:
    """Return the end offsets now. Raises UnauthorisedError without DESCRIBE on one of the topics."""
    from offsetstream.cluster.log_ends import HIDDEN, LogEnd  # noqa: PLC0415 - imported on use
    from offsetstream.cluster.rights import describe_each  # noqa: PLC0415 - likewise

    wanted: dict[str, set[int]] = {}
    for topic, number in places:
        wanted.setdefault(topic, set()).add(number)
    found = cluster.ends(wanted, {})
    ends: dict[TopicPartition, End] = {
        place: end.high_watermark if isinstance(end, LogEnd) else end.error for place, end in found.items()
    }
    if hidden := {topic for (topic, _), end in ends.items() if end == HIDDEN}:
        raise cluster.lacks(describe_each("topic", hidden))
    return ends


def _with_ends(found: Iterator[GroupBatch], ends: _Ends) -> Iterator[tuple[GroupBatch, Mapping[TopicPartition, End]]]:
    """Yield the groups with their end offsets; one request to the cluster serves thousands of rows."""
    for part in in_parts(found, _ROWS_PER_REQUEST, attrgetter("size")):
        known = ends.of(set[TopicPartition]().union(*map(topic_partitions, part)))
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
    from offsetstream.cluster.log_ends import LogEnds  # noqa: PLC0415 - likewise

    return connect_to_tables_cluster(LogEnds, store, bootstrap_server, command_config)


def _coordinators(store: Store, bootstrap_server: str | None, command_config: str | None) -> CoordinatorLookup | None:
    if bootstrap_server is None:
        return None
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
        columns = shown(OFFSETS, verbose=verbose)
        as_kafka = [column for column in columns if column.name != "note"]
        blocks = (
            Blocks(columns if any(values["note"]) else as_kafka, values, [size for size in sizes if size])
            for values, sizes in parts
        )
        output.blocks(blocks, closing=closing)
    else:
        output.table(OFFSETS, RereadParts(lambda: (age.columns(values) for values, _ in parts)), closing=closing)


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
        output.blocks(merge_blocks(block(columns, rows, verbose=verbose) for rows in shown), closing=closing)
        return
    output.table(columns, (age.row(row) for _, rows in groups for row in rows), closing=closing)


TopicPartition = tuple[str, int]
End = int | str  # log end offset, or Kafka's name of the error

# Not in text. They distinguish two copies of a group.
_COPY = (Column("offsets_partition"), Column("in_coordinator_partition"), Column("type"), *AGE)
_VERBOSE = {
    "leader_epoch",
    "group_epoch",
    "target_assignment_epoch",
    "current_epoch",
    "current_assignment",
    "target_epoch",
    "target_assignment",
    "upgraded",
}
OFFSETS = (
    Column("group", "GROUP", 15),
    Column("topic", "TOPIC", 15),
    Column("partition", "PARTITION", 10, "id"),
    Column("leader_epoch", "LEADER-EPOCH", 15, "id"),
    Column("current_offset", "CURRENT-OFFSET", 15, "id"),
    Column("log_end_offset", "LOG-END-OFFSET", 15, "id"),
    Column("lag", "LAG", 15, "number"),
    Column("consumer_id", "CONSUMER-ID", 15, "member"),
    Column("host", "HOST", 15),
    Column("client_id", "CLIENT-ID"),
    *_COPY,
    Column("note", "NOTE"),
)
MEMBERS = (
    Column("group", "GROUP", 15),
    Column("consumer_id", "CONSUMER-ID", 15, "member"),
    Column("group_instance_id", "GROUP-INSTANCE-ID", 17),
    Column("host", "HOST", 15),
    Column("client_id", "CLIENT-ID", 15),
    Column("partitions", "#PARTITIONS", 15, "number"),
    Column("current_epoch", "CURRENT-EPOCH", 15, "id"),
    Column("current_assignment", "CURRENT-ASSIGNMENT", 20),
    Column("target_epoch", "TARGET-EPOCH", 15, "id"),
    Column("target_assignment", "TARGET-ASSIGNMENT", 20),
    Column("upgraded", "UPGRADED"),
    *_COPY,
)
STATE = (
    Column("group", "GROUP", 15),
    Column("coordinator", "COORDINATOR (ID)", 25),
    Column("coordinator_id"),
    Column("assignment_strategy", "ASSIGNMENT-STRATEGY", 20),
    Column("state", "STATE", 20),
    Column("group_epoch", "GROUP-EPOCH", 15, "id"),
    Column("target_assignment_epoch", "TARGET-ASSIGNMENT-EPOCH", 25, "id"),
    Column("members", "#MEMBERS", 0, "number"),
    *_COPY,
)


def block(columns: Iterable[Column], rows: list[Row], *, verbose: bool) -> Block:
    """Return one group's block of text, without empty optional columns, and without those of `--verbose`."""
    hidden = {name for name in ("group_instance_id", "note") if not any(row.get(name) for row in rows)}
    if not {True, False} <= {row.get("upgraded") for row in rows}:
        hidden.add("upgraded")
    return Block([column for column in shown(columns, verbose=verbose) if column.name not in hidden], rows)


def shown(columns: Iterable[Column], *, verbose: bool) -> list[Column]:
    """Return the columns without those that only `--verbose` shows."""
    return [column for column in columns if verbose or column.name not in _VERBOSE]


def partitions_of(groups: Collection[Group]) -> set[TopicPartition]:
    """Return the partitions that the offsets view shows for these groups."""
    committed = {(row["topic"], row["partition"]) for group in groups for row in group.offsets}
    return committed | {partition for group in groups for owned in _owned(group).values() for partition in owned}


def offset_rows(group: Group, ends: Mapping[TopicPartition, End], *, clamped: bool = True) -> list[Row]:
    """Return a row per partition: members with more partitions first, partitions without an owner last.

    `ends` has the log end offsets, or why one is unknown. `clamped`: see `offset_state`.
    """
    committed = {(row["topic"], row["partition"]): row for row in group.offsets}
    owned = _owned(group)
    members = sorted(group.members, key=lambda member: -len(owned[member["member_id"]]))
    rows = [
        _offset_row(group, partition, committed.get(partition, {}), ends, member, clamped)
        for member in members
        for partition in sorted(owned[member["member_id"]])
    ]
    unowned = committed.keys() - {partition for partitions in owned.values() for partition in partitions}
    rows += [_offset_row(group, partition, committed[partition], ends, {}, clamped) for partition in sorted(unowned)]
    return rows


def member_rows(group: Group) -> list[Row]:
    """Return a row per member, by member id."""
    current, target = _assigned(group, target=False), _assigned(group, target=True)
    is_classic = group.row["group_type"] == "Classic"
    return [
        {
            **_copy(group),
            "consumer_id": member["member_id"],
            "group_instance_id": member["group_instance_id"],
            "host": member["client_host"],
            "client_id": member["client_id"],
            "partitions": len(current[member["member_id"]]),
            "current_epoch": member["member_epoch"],
            "current_assignment": _assignment_text(current[member["member_id"]]),
            "target_epoch": group.row["assignment_epoch"],
            "target_assignment": _assignment_text(target[member["member_id"]]),
            "upgraded": None if is_classic else not member["is_classic_protocol"],
        }
        for member in group.members
    ]


def state_row(group: Group, coordinators: Mapping[int, int | None], addresses: Mapping[int, str]) -> Row:
    """Return the group's state; `coordinators` has the broker id of each offsets partition.

    The tables only have broker ids: `addresses` adds host and port, if known.
    """
    coordinator = coordinators.get(group.row["offsets_partition"])
    return {
        **_copy(group),
        "coordinator": broker_text(coordinator, addresses),
        "coordinator_id": coordinator,
        "assignment_strategy": group.row["protocol"] or _preferred_assignor(group),
        "state": group.row["state"],
        "group_epoch": group.row["group_epoch"],
        "target_assignment_epoch": group.row["assignment_epoch"],
        "members": group.row["member_count"],
    }


def broker_text(broker_id: int | None, addresses: Mapping[int, str]) -> str | None:
    """Return the broker as Kafka's tool writes it: "host:port (id)", or "(id)" if the address is unknown."""
    if broker_id is None:
        return None
    return f"{addresses[broker_id]} ({broker_id})" if broker_id in addresses else f"({broker_id})"


# The columns that `offset_state` returns.
OFFSET_STATE = ("current_offset", "log_end_offset", "lag", "note")


def offset_state(
    offset: int | None, end: End | None, *, clamped: bool
) -> tuple[int | None, int | None, int | None, str | None]:
    """Return current offset, log end offset, lag and note.

    An offset below zero counts as no offset, as in Kafka's tool. With `clamped`, an offset beyond the end has lag 0: it
    may be newer than the sampled end. Kafka's tool, with live ends, shows a negative lag.
    """
    note = f"no end: {end}" if isinstance(end, str) else None
    known = None if isinstance(end, str) else end
    if offset is None:
        return None, known, None, note
    if offset < 0:
        return None, known, None, no_offset(offset)
    if known is None or known >= offset:
        return offset, known, None if known is None else known - offset, note
    return (offset, known, 0, None) if clamped else (offset, known, known - offset, "beyond the end of the log")


def _offset_row(
    group: Group,
    partition: TopicPartition,
    committed: Row,
    ends: Mapping[TopicPartition, End],
    member: Row,
    clamped: bool,
) -> Row:
    offset = committed.get("committed_offset")
    return {
        **_copy(group),
        "topic": partition[0],
        "partition": partition[1],
        "leader_epoch": committed.get("leader_epoch"),
        **dict(zip(OFFSET_STATE, offset_state(offset, ends.get(partition), clamped=clamped), strict=True)),
        "consumer_id": member.get("member_id"),
        "host": member.get("client_host"),
        "client_id": member.get("client_id"),
    }


def _owned(group: Group) -> defaultdict[str, set[TopicPartition]]:
    """Return the partitions of each member, with those it still has to give up (4.3)."""
    return _assigned(group, target=False, tasks=False)


def _assigned(group: Group, *, target: bool, tasks: bool = True) -> defaultdict[str, set[TopicPartition]]:
    """Return the current or target assignment of each member; streams tasks, if wanted, by subtopology."""
    found: defaultdict[str, set[TopicPartition]] = defaultdict(set)
    for row in group.assignments:
        name = row["topic"] or (row["subtopology_id"] if tasks else None)
        if name is not None and (row["kind"] == "target") == target:
            found[row["member_id"]].add((name, row["partition"]))
    return found


def _assignment_text(partitions: set[TopicPartition]) -> str | None:
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(partitions):
        numbers[topic].append(number)
    return ";".join(f"{topic}:{','.join(map(str, of_topic))}" for topic, of_topic in numbers.items()) or None


def _preferred_assignor(group: Group) -> str | None:
    """Return the assignor that most members prefer, which a consumer group uses; None if no member names one."""
    counts = Counter(sorted(row["server_assignor"] for row in group.members if row["server_assignor"]))
    return counts.most_common(1)[0][0] if counts else None


def _copy(group: Group) -> Row:
    place = {name: group.row[name] for name in ("offsets_partition", "in_coordinator_partition")}
    return {"group": group.group_id, "type": group.row["group_type"]} | place


_MEMBER_COLUMNS = ("consumer_id", "host", "client_id")


def topic_partitions(batch: GroupBatch) -> set[TopicPartition]:
    """Return the partitions that the view shows for these groups."""
    return partitions_of(batch.with_members.values()).union(_places(batch))


def offset_columns(
    batch: GroupBatch, ends: Mapping[TopicPartition, End], *, clamped: bool, as_text: bool
) -> tuple[dict[str, list[Any]], list[int]]:
    """Return the rows of `describe.offset_rows` for each copy of a group, by column, and the row count of each copy.

    With `as_text`, copies that are not current have no rows, and the columns that distinguish copies are missing.
    """
    columns = _unowned(batch, ends, clamped=clamped) | ({} if as_text else _copies(batch))
    ranges = list(map(batch.offsets.range_of, batch.groups.copies))
    for number, group in batch.with_members.items():
        rows, end = offset_rows(group, ends, clamped=clamped), len(columns["group"])
        for name, values in columns.items():
            values += [row[name] for row in rows]
        ranges[number] = range(end, end + len(rows))
    if as_text:
        ranges = [rows if is_current else range(0) for rows, is_current in zip(ranges, batch.are_current, strict=True)]
    order = list(chain.from_iterable(ranges))
    return {name: [values[number] for number in order] for name, values in columns.items()}, list(map(len, ranges))


def _unowned(batch: GroupBatch, ends: Mapping[TopicPartition, End], *, clamped: bool) -> dict[str, list[Any]]:
    """Return the columns of all commits, as for partitions without an owner."""
    commits, offsets = batch.offsets.columns, batch.offsets.columns["committed_offset"]
    states = [
        offset_state(offset, end, clamped=clamped)
        for offset, end in zip(offsets, map(ends.get, _places(batch)), strict=True)
    ]
    by_column = list(zip(*states, strict=True)) or [()] * len(OFFSET_STATE)
    return {
        "group": [*commits["group_id"]],
        "topic": [*commits["topic"]],
        "partition": [*commits["partition"]],
        "leader_epoch": [*commits["leader_epoch"]],
        **{name: [*values] for name, values in zip(OFFSET_STATE, by_column, strict=True)},
        **{name: [None] * len(offsets) for name in _MEMBER_COLUMNS},
    }


def _copies(batch: GroupBatch) -> dict[str, list[Any]]:
    """Return for each commit the columns that identify the copy of its group."""
    groups = batch.groups.columns
    facts = dict(
        zip(
            batch.groups.copies, zip(groups["in_coordinator_partition"], groups["group_type"], strict=True), strict=True
        )
    )
    copies = [facts.get(copy, (None, None)) for copy in batch.offsets.copies]
    return {
        "offsets_partition": [*batch.offsets.columns["offsets_partition"]],
        "in_coordinator_partition": [is_home for is_home, _ in copies],
        "type": [group_type for _, group_type in copies],
    }


def _places(batch: GroupBatch) -> Iterator[TopicPartition]:
    topics: Sequence[str] = batch.offsets.columns["topic"]
    return zip(topics, batch.offsets.columns["partition"], strict=True)


_PARTS = ("group_members", "member_assignments", "committed_offsets")


def groups_at(reader: ViewReader, groups: tuple[str, ...]) -> Iterator[Group]:
    """Yield the given groups, or all, at the reader's time, sorted by group id."""
    parts = {table: _by_group(fetch_sorted(table_of(reader, table, {"group_id": groups}))) for table in _PARTS}
    for row in sorted(
        fetch_sorted(table_of(reader, "groups", {"group_id": groups})), key=itemgetter("group_id", "offsets_partition")
    ):
        place = row["offsets_partition"], row["group_id"]
        members, assignments, offsets = (parts[table][place] for table in _PARTS)
        yield Group(row, True, sorted(members, key=lambda member: member["member_id"]), assignments, offsets)


def ends_at(reader: ViewReader, groups: Iterable[Group]) -> tuple[dict[tuple[str, int], End], list[datetime]]:
    """Return the end offsets of the partitions that the groups read, and the times when they were sampled."""
    topics = {row["topic"] for group in groups for row in (*group.offsets, *group.assignments) if row["topic"]}
    return ends_of(reader, topics)


def closing_at(at: datetime, as_of: str, groups: list[Group], sampled: list[datetime] | None) -> str:
    """Return the sentence that describes the groups: as of when, type, state, generation, members, protocol."""
    texts = [_summary(group.row) for group in groups]
    if len(texts) > 1:
        texts = [f"{group.group_id}: {text}" for group, text in zip(groups, texts, strict=True)]
    ends = "" if sampled is None else f"; {ends_text(sampled, at)}"
    return f"{capitalized(as_of)}: {'; '.join(texts) or 'no group'}{ends}."


def _summary(row: Row) -> str:
    epoch = f"generation {row['generation']}" if row["group_type"] == "Classic" else f"epoch {row['group_epoch']}"
    parts = [row["group_type"], row["state"], epoch, counted(row["member_count"], "member"), row["protocol"]]
    return ", ".join(part for part in parts if part)


def _by_group(rows: Iterable[Row]) -> defaultdict[tuple[int, str], list[dict[str, Any]]]:
    found: defaultdict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["offsets_partition"], row["group_id"]].append(row)
    return found
