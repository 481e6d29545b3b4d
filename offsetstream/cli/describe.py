"""The three views of `groups describe`: columns and rows as in Kafka's own tool from 4.2 on (8.4)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from offsetstream.cli.age import AGE
from offsetstream.cli.group_state import Group
from offsetstream.cli.output import Block, Column
from offsetstream.cluster.answers import no_offset

Row = dict[str, Any]
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


def topic_partitions(groups: Collection[Group]) -> set[TopicPartition]:
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
