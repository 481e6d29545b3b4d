"""`offsetstream groups describe`: groups as Kafka's own tool shows them (8.4), now or at a past time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain, compress
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.age import AGE
from offsetstream.cli.answers import (
    Answer,
    Asked,
    End,
    Found,
    Part,
    Row,
    Rows,
    SampledEnds,
    TopicPartition,
    cells_of,
)
from offsetstream.cli.failures import OneLineErrors
from offsetstream.cli.group_state import Group, GroupBatch, read_batches
from offsetstream.cli.options import UNREACHABLE, cluster_options, connect_to_tables_cluster, is_unreachable
from offsetstream.cli.output import Block, Blocks, Column, RereadParts, merge_blocks
from offsetstream.cli.text import counted, print_lines
from offsetstream.cluster.answers import no_offset
from offsetstream.cluster.rights import describe_each
from offsetstream.in_parts import in_parts

if TYPE_CHECKING:
    from offsetstream.cluster.log_ends import LogEnds

_ROWS_PER_REQUEST = 10_000  # the cluster returns the ends of so many rows together
_REBALANCING = "Warning: Consumer group '{}' is rebalancing."
_STATE_WARNINGS = {
    "Empty": "Consumer group '{}' has no active members.",
    "Assigning": _REBALANCING,
    "Reconciling": _REBALANCING,
}
_VIEWS = {"--offsets", "--members", "--state"}


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


class OneView(OneLineErrors):
    """A command that shows exactly one view, as Kafka's tool does; click would silently ignore a second one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options."""
        if len(_VIEWS & set(args)) > 1:
            raise click.UsageError(f"give one of {', '.join(sorted(_VIEWS))}", ctx)
        return super().parse_args(ctx, args)


def _described(asked: Asked) -> Found:
    """Describe the groups. They are read while they are printed."""
    view, verbose = asked.options["view"], asked.options["verbose"]
    ends = _ends(asked) if view == "offsets" else asked.ends
    columns = {"offsets": OFFSETS, "members": MEMBERS, "state": STATE}[view]
    past: list[Row] = []  # the groups at a past time

    def batches() -> Iterator[GroupBatch]:
        tables = asked.reader.tables
        for batch in read_batches(tables, asked.groups or None, members=True, offsets=view == "offsets"):
            asked.saw(batch.groups.columns["group_id"])
            if asked.at:
                past.extend(group.row for group in batch.each())
            yield batch

    def offsets() -> Iterator[tuple[Part, list[int]]]:
        for some in in_parts(batches(), _ROWS_PER_REQUEST, attrgetter("size")):
            known = ends.of(set[TopicPartition]().union(*map(topic_partitions, some)))
            for batch in _warned(some):
                yield offset_columns(batch, known, clamped=isinstance(ends, SampledEnds), as_text=asked.is_text)

    def rows_by_group() -> Iterator[list[tuple[Group, Rows]]]:
        rows_of = member_rows if view == "members" else _state_rows(asked)
        return ([(group, rows_of(group)) for group in batch.each()] for batch in _warned(batches()))

    def blocks() -> Iterator[Blocks]:
        if view == "offsets":
            return _offset_blocks(offsets(), verbose=verbose)
        current = (rows for some in rows_by_group() for group, rows in some if group.is_current and rows)
        return merge_blocks(block(columns, rows, verbose=verbose) for rows in current)

    def parts() -> Iterator[Part]:
        if view == "offsets":
            found = (part for part, _ in offsets())
        else:
            found = (_by_column([row for _, rows in some for row in rows]) for some in rows_by_group())
        return (cells_of(asked.age.columns(part), columns) for part in found if part)

    return Found(
        columns,
        RereadParts(parts),
        lambda: asked.plain_closing(_summaries(past)),
        lambda: UNREACHABLE if isinstance(ends, _LiveEnds) and ends.is_silent else 0,
        asked.plain_missing,
        asked.plain_warnings(),
        blocks=asked.read_if_named(blocks()) if asked.is_text else None,
    )


describe_groups = Answer(
    name="groups.describe",
    text="""Describe groups as 'kafka-consumer-groups --describe' does, now or at a past time.

    Examples:
      offsetstream groups describe --group my-group
      offsetstream groups describe --group my-group --bootstrap-server localhost:9092
      offsetstream groups describe --group a --group b --members --verbose
      offsetstream groups describe --all-groups --state --output csv
      offsetstream groups describe --group my-group --at 03:00

    LOG-END-OFFSET is the end that the job sampled or, with --bootstrap-server, the end now. LAG is LOG-END-OFFSET
    minus CURRENT-OFFSET, as in Kafka's tool ('offsetstream lag' counts readable messages only). NOTE says why an end
    is unknown. The address of a coordinator needs --bootstrap-server. ASSIGNMENT-STRATEGY is - if the broker chose the
    assignor.

    Exit codes: 1 a group does not exist; 3 a partition has no leader, or its leader does not answer.""",
    filters=("groups",),
    options=(
        click.option(
            "--offsets",
            "view",
            flag_value="offsets",
            default="offsets",
            help="Show committed offsets and their owners (the default view).",
        ),
        click.option(
            "--members", "view", flag_value="members", help="Show members and the number of their partitions."
        ),
        click.option("--state", "view", flag_value="state", help="Show state, coordinator and number of members."),
        click.option("--verbose", is_flag=True, help="Add columns: epochs and assignments."),
        cluster_options,
    ),
    columns=list(dict.fromkeys([*OFFSETS, *MEMBERS, *STATE])),
    found=_described,
    cls=OneView,
).command()


class _LiveEnds:
    """End offsets of the live cluster."""

    def __init__(self, cluster: LogEnds) -> None:
        self._cluster = cluster
        self._known: dict[TopicPartition, End] = {}

    def of(self, places: set[TopicPartition]) -> Mapping[TopicPartition, End]:
        """Return the end offset of each partition, or Kafka's name of the error."""
        if unknown := places - self._known.keys():
            self._known.update(_live_ends(self._cluster, unknown))
        return self._known

    @property
    def is_silent(self) -> bool:
        """Whether a requested partition had no leader, or its leader did not answer."""
        return any(isinstance(end, str) and is_unreachable(end) for end in self._known.values())


def _ends(asked: Asked) -> _LiveEnds | SampledEnds:
    server = asked.options["bootstrap_server"]
    if server is None or asked.at:
        return asked.ends
    from offsetstream.cluster.log_ends import LogEnds

    return _LiveEnds(connect_to_tables_cluster(LogEnds, asked.reader.store, server, asked.options["command_config"]))


def _live_ends(cluster: LogEnds, places: Iterable[TopicPartition]) -> dict[TopicPartition, End]:
    """Return the end offsets now. Raises UnauthorisedError without DESCRIBE on one of the topics."""
    from offsetstream.cluster.log_ends import HIDDEN, LogEnd

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


def _state_rows(asked: Asked) -> Callable[[Group], Rows]:
    """Return what makes the row of a group's state. Only the live cluster knows the addresses of brokers."""
    if asked.at:
        return lambda group: [state_row(group, {}, {})]
    partitions = asked.reader.tables.rows("offsets_partitions", ["offsets_partition", "coordinator_id"])
    coordinators = {row["offsets_partition"]: row["coordinator_id"] for row in partitions}
    addresses: dict[int, str] = {}
    if server := asked.options["bootstrap_server"]:
        from offsetstream.cluster.coordinators import CoordinatorLookup

        cluster = connect_to_tables_cluster(
            CoordinatorLookup, asked.reader.store, server, asked.options["command_config"]
        )
        addresses = {number: broker.address for number, broker in cluster.brokers().items()}
    return lambda group: [state_row(group, coordinators, addresses)]


def _warned(found: Iterable[GroupBatch]) -> Iterator[GroupBatch]:
    """Yield the groups after what Kafka's tool says about their states: a failure before prints its error only."""
    for batch in found:
        facts = zip(*(batch.groups.columns[name] for name in ("group_id", "state")), strict=True)
        current = compress(facts, batch.are_current)
        print_lines(
            [_STATE_WARNINGS[state].format(group_id) for group_id, state in current if state in _STATE_WARNINGS]
        )
        yield batch


def _offset_blocks(parts: Iterable[tuple[Part, list[int]]], *, verbose: bool) -> Iterator[Blocks]:
    columns = shown(OFFSETS, verbose=verbose)
    as_kafka = [column for column in columns if column.name != "note"]
    for part, sizes in parts:
        yield Blocks(columns if any(part["note"]) else as_kafka, part, [size for size in sizes if size])


def _by_column(rows: Rows) -> Part:
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def _summaries(groups: Rows) -> str:
    """Return what a sentence says of past groups: type, state, generation, members, protocol."""
    texts = [_summary(row) for row in groups]
    if len(texts) > 1:
        texts = [f"{row['group_id']}: {text}" for row, text in zip(groups, texts, strict=True)]
    return f": {'; '.join(texts) or 'no group'}"


def _summary(row: Row) -> str:
    epoch = f"generation {row['generation']}" if row["group_type"] == "Classic" else f"epoch {row['group_epoch']}"
    parts = [row["group_type"], row["state"], epoch, counted(row["member_count"], "member"), row["protocol"]]
    return ", ".join(part for part in parts if part)


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


def states_of(commits: Part, ends: Mapping[TopicPartition, End], *, clamped: bool) -> dict[str, list[Any]]:
    """Return the columns of `offset_state` for commits."""
    found = map(ends.get, places_of(commits))
    states = [
        offset_state(offset, end, clamped=clamped)
        for offset, end in zip(commits["committed_offset"], found, strict=True)
    ]
    by_column = zip(*states, strict=True) if states else [()] * len(OFFSET_STATE)
    return {name: [*values] for name, values in zip(OFFSET_STATE, by_column, strict=True)}


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
    return partitions_of(batch.with_members.values()).union(places_of(batch.offsets.columns))


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
    commits = batch.offsets.columns
    return {
        "group": [*commits["group_id"]],
        "topic": [*commits["topic"]],
        "partition": [*commits["partition"]],
        "leader_epoch": [*commits["leader_epoch"]],
        **states_of(commits, ends, clamped=clamped),
        **{name: [None] * len(commits["topic"]) for name in _MEMBER_COLUMNS},
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


def places_of(commits: Part) -> Iterator[TopicPartition]:
    """Return the topic partition of each commit."""
    return zip(commits["topic"], commits["partition"], strict=True)
