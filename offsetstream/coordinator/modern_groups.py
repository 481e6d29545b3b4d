"""Derive consumer (KIP-848), share (KIP-932) and streams (KIP-1071) groups from their records (reference 1.4-1.6, 5.7).

The three types have the same structure. A group has a record with its epoch and one with the epoch of its target
assignment. A member has up to three records: its metadata, its target assignment and its current assignment. Compaction
and the order of writing may leave out a record; a broker's initial value is then used (4.3.1: ModernGroup, StreamsGroup
and the builders of the members).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import is_
from typing import Any, NamedTuple, Self

from offsetstream.coordinator.rows import (
    AssignmentKey,
    Assignments,
    Cell,
    GroupRows,
    NamedPartitions,
    Partitions,
    Row,
    assignments_of,
    group_row,
    latest,
    member_row,
    subscription_row,
)

_INITIAL_EPOCH = 1
_NO_TOPOLOGY_EPOCH = -1  # validatedTopologyEpoch of a record without one
_REGEX, _TOPOLOGY = 16, 23  # the records with the topics of a regular expression or a topology
_UNKNOWN = "UNKNOWN"
# modern/MemberState and streams/MemberState: their numbers differ by one
_STATES = {0: "STABLE", 1: "UNREVOKED_PARTITIONS", 2: "UNRELEASED_PARTITIONS"}
# The pending field that is not empty gives the state.
_STATE_IN_3_7 = {"partitionsPendingRevocation": 1, "partitionsPendingAssignment": 2}
_ONLY_IN_3_7 = "assignors"
_STREAMS_STATES = {1: "STABLE", 2: "UNREVOKED_TASKS", 3: "UNRELEASED_TASKS"}
# Initial values of a member without a record of type 8 or 14 (Kafka's builder); a streams member has none.
_INITIAL = {"member_epoch": 0, "previous_member_epoch": -1, "member_state": "STABLE"}
_TASKS = {"activeTasks": "active", "standbyTasks": "standby", "warmupTasks": "warmup"}
_SHARE_CURRENT = 14

_Entries = list[dict[str, Any]]  # {topicId or subtopologyId, partitions, assignmentEpochs?}
Names = Mapping[str, str]  # topic id to topic name; an id without a name is used as the name


class MemberCells(NamedTuple):
    """A member's records: metadata, target assignment, current assignment. Metadata or current is not None."""

    metadata: Cell | None
    target: Cell | None
    current: Cell | None

    @property
    def latest(self) -> Cell:
        """The record that is the last in the log."""
        return latest(cell for cell in self if cell is not None)


@dataclass(frozen=True)
class ModernType:
    """A group type: its name in the Admin API, the key types of its records, and the functions that read them."""

    name: str
    group: int
    member: int
    target_epoch: int
    target: int
    current: int
    others: frozenset[int]  # they only make the group exist
    member_row: Callable[[str, str, MemberCells], Row]
    targets: Callable[[str, str, Cell, Names], Assignments]
    currents: Callable[[str, str, Cell, Names], Assignments]

    @cached_property
    def key_types(self) -> frozenset[int]:
        """All key types whose live records make a group of this type exist."""
        return self.others | {self.group, self.member, self.target_epoch, self.target, self.current}


class MemberRows(NamedTuple):
    """The rows of one member, and the records that they come from."""

    sources: tuple[Cell | None, ...]
    member: Row
    assignments: list[Assignments]
    subscriptions: list[Row]


MemberCache = dict[str, MemberRows]  # by member id


def derive_modern_group(
    modern: ModernType, group_id: str, cells: Sequence[Cell], names: Names, known: MemberCache | None = None
) -> GroupRows:
    """Return the rows of a group of the type `modern`. `cells` are its records; there must be at least one.

    `known` has the member rows of the previous call, and is updated: only members with other records are derived again.
    """
    by_key_type = {cell.key_type: cell for cell in cells if "memberId" not in cell.key}
    members = _derived_members(modern, group_id, cells, names, {} if known is None else known)
    member_rows = [rows.member for rows in members]
    group_epoch = _epoch(by_key_type.get(modern.group), "epoch")
    assignment_epoch = _epoch(by_key_type.get(modern.target_epoch), "assignmentEpoch")
    return GroupRows(
        group_row(
            latest(cells),
            group_id=group_id,
            group_type=modern.name,
            state=_group_state(modern, by_key_type, group_epoch, assignment_epoch, member_rows),
            is_simple=False,
            group_epoch=group_epoch,
            assignment_epoch=assignment_epoch,
            member_count=len(members),
        ),
        member_rows,
        [assignments for rows in members for assignments in rows.assignments],
        [row for rows in members for row in rows.subscriptions],
    )


def _derived_members(
    modern: ModernType, group_id: str, cells: Sequence[Cell], names: Names, known: MemberCache
) -> Collection[MemberRows]:
    sources = _SubscriptionSources.of(cells)
    members = _members(modern, cells)
    for removed in known.keys() - members.keys():
        del known[removed]
    for member_id, member_cells in members.items():
        used = (*member_cells, sources.regex_record(member_cells.metadata), sources.topology)
        if member_id not in known or not all(map(is_, known[member_id].sources, used)):
            known[member_id] = MemberRows(
                used,
                modern.member_row(group_id, member_id, member_cells),
                _assignments(modern, group_id, member_id, member_cells, names),
                _subscriptions(group_id, member_id, member_cells.metadata, sources) if member_cells.metadata else [],
            )
    return [known[member_id] for member_id in members]


def _members(modern: ModernType, cells: Sequence[Cell]) -> dict[str, MemberCells]:
    by_type: dict[int, dict[str, Cell]] = {modern.member: {}, modern.target: {}, modern.current: {}}
    for cell in cells:
        if cell.key_type in by_type:
            by_type[cell.key_type][cell.member_id] = cell
    metadata, target, current = by_type[modern.member], by_type[modern.target], by_type[modern.current]
    # A target assignment alone makes no member; each of the other two records does.
    return {
        member_id: MemberCells(metadata.get(member_id), target.get(member_id), current.get(member_id))
        for member_id in sorted(metadata.keys() | current.keys())
    }


def _epoch(cell: Cell | None, field: str) -> int:
    epoch: int = _INITIAL_EPOCH if cell is None else cell.value[field]
    return epoch


def _group_state(
    modern: ModernType,
    by_key_type: dict[int, Cell],
    group_epoch: int,
    assignment_epoch: int,
    members: Sequence[Row],
) -> str:
    if not members:
        return "Empty"
    if modern is SHARE:
        return "Stable"
    if modern is STREAMS and not _is_ready(by_key_type):
        return "NotReady"
    if group_epoch > assignment_epoch:
        return "Assigning"
    # A static member that left temporarily has epoch -2, so the group stays Reconciling (reference 5.10 item 3).
    if any(row["member_state"] != "STABLE" or row["member_epoch"] != assignment_epoch for row in members):
        return "Reconciling"
    return "Stable"


def _is_ready(by_key_type: dict[int, Cell]) -> bool:
    """Whether the group has the topology that its group record states as validated."""
    topology, group = by_key_type.get(_TOPOLOGY), by_key_type.get(STREAMS.group)
    validated = 0 if group is None else group.value.get("validatedTopologyEpoch", _NO_TOPOLOGY_EPOCH)
    return topology is not None and bool(topology.value["epoch"] == validated)


def _consumer_member(group_id: str, member_id: str, cells: MemberCells) -> Row:
    """Return the row of a consumer group's member (reference 1.4, records 5 and 8)."""
    value = cells.metadata.value if cells.metadata else {}
    classic = _classic_metadata(value)
    return member_row(
        cells.latest,
        **_identity(group_id, member_id, value),
        **_epochs(cells.current, _STATES, _INITIAL),
        rebalance_timeout_ms=value.get("rebalanceTimeoutMs"),
        session_timeout_ms=classic["sessionTimeoutMs"] if classic else None,
        is_classic_protocol=classic is not None,
        server_assignor=value.get("serverAssignor"),
        subscribed_topic_regex=value.get("subscribedTopicRegex"),
    )


def _share_member(group_id: str, member_id: str, cells: MemberCells) -> Row:
    """Return the row of a share group's member (reference 1.5, records 10 and 14)."""
    value = cells.metadata.value if cells.metadata else {}
    return member_row(
        cells.latest,
        **_identity(group_id, member_id, value),
        **_epochs(cells.current, _STATES, _INITIAL),
        is_classic_protocol=False,
    )


def _streams_member(group_id: str, member_id: str, cells: MemberCells) -> Row:
    """Return the row of a streams group's member (reference 1.6, records 19 and 22)."""
    value = cells.metadata.value if cells.metadata else {}
    endpoint = value.get("userEndpoint")
    return member_row(
        cells.latest,
        **_identity(group_id, member_id, value),
        **_epochs(cells.current, _STREAMS_STATES, {}),
        rebalance_timeout_ms=value.get("rebalanceTimeoutMs"),
        is_classic_protocol=False,
        process_id=value.get("processId"),
        user_endpoint=f"{endpoint['host']}:{endpoint['port']}" if endpoint else None,
        topology_epoch=value.get("topologyEpoch"),
    )


def _identity(group_id: str, member_id: str, value: dict[str, Any]) -> Row:
    return {
        "group_id": group_id,
        "member_id": member_id,
        "group_instance_id": value.get("instanceId"),
        "rack_id": value.get("rackId"),
        "client_id": value.get("clientId"),
        "client_host": value.get("clientHost"),
    }


def _classic_metadata(value: dict[str, Any]) -> dict[str, Any] | None:
    """Return the classic protocol's data of a member; None for a member of the consumer protocol."""
    if not value or _ONLY_IN_3_7 in value:
        return None
    # An absent field has its default, an empty struct: this also means the classic protocol.
    metadata: dict[str, Any] | None = value.get("classicMemberMetadata", {"sessionTimeoutMs": 0})
    return metadata


def _epochs(current: Cell | None, states: dict[int, str], initial: Row) -> Row:
    if current is None:
        return initial
    return {
        "member_epoch": current.value["memberEpoch"],
        "previous_member_epoch": current.value["previousMemberEpoch"],
        "member_state": _member_state(current.value, states),
    }


def _member_state(value: dict[str, Any], states: dict[int, str]) -> str:
    if "state" not in value:  # record 8 as 3.7 wrote it (reference 1.4)
        pending = (number for name, number in _STATE_IN_3_7.items() if value[name])
        return states[next(pending, 0)]
    return states.get(value["state"], _UNKNOWN)


def _assignments(
    modern: ModernType, group_id: str, member_id: str, cells: MemberCells, names: Names
) -> list[Assignments]:
    current = [modern.currents(group_id, member_id, cells.current, names)] if cells.current else []
    target = [modern.targets(group_id, member_id, cells.target, names)] if cells.target else []
    return current + target


def _current_partitions(group_id: str, member_id: str, cell: Cell, names: Names) -> Assignments:
    """Return a member's current partitions and those pending revocation: a record of type 8, or 14 (no epochs)."""
    epoch = None if cell.key_type == _SHARE_CURRENT else max(cell.value["memberEpoch"], 0)
    fields = {"assignedPartitions": "assigned", "partitionsPendingRevocation": "pending_revocation"}
    found = (_partitions(kind, cell.value.get(name, []), epoch, names) for name, kind in fields.items())
    return assignments_of(cell, group_id, member_id, chain.from_iterable(found))


def _target_partitions(group_id: str, member_id: str, cell: Cell, names: Names) -> Assignments:
    """Return a member's target partitions: a record of type 7 or 13."""
    found = _partitions("target", cell.value["topicPartitions"], None, names)
    return assignments_of(cell, group_id, member_id, found)


def _current_tasks(group_id: str, member_id: str, cell: Cell, _names: Names) -> Assignments:
    """Return a streams member's current tasks by role, and those pending revocation: a record of type 22."""
    fields = _TASKS | {f"{name}PendingRevocation": "pending_revocation" for name in _TASKS}
    found = (
        _tasks(kind, cell.value[name], cell.value["memberEpoch"] if name.startswith("active") else None)
        for name, kind in fields.items()
    )
    return assignments_of(cell, group_id, member_id, chain.from_iterable(found))


def _target_tasks(group_id: str, member_id: str, cell: Cell, _names: Names) -> Assignments:
    """Return a streams member's target tasks of all roles: a record of type 21."""
    found = (_tasks("target", cell.value[name], None) for name in _TASKS)
    return assignments_of(cell, group_id, member_id, chain.from_iterable(found))


def _partitions(
    kind: str, entries: _Entries, epoch: int | None, names: Names
) -> Iterator[tuple[AssignmentKey, NamedPartitions]]:
    for topic_id, partitions in _partitions_by_id("topicId", entries, epoch):
        yield (kind, None, topic_id, None), (names.get(topic_id, topic_id), partitions)


def _tasks(kind: str, entries: _Entries, epoch: int | None) -> Iterator[tuple[AssignmentKey, NamedPartitions]]:
    for subtopology_id, partitions in _partitions_by_id("subtopologyId", entries, epoch):
        yield (kind, subtopology_id, None, None), (None, partitions)


def _partitions_by_id(name: str, entries: _Entries, epoch: int | None) -> Iterator[tuple[str, Partitions]]:
    for entry in {entry[name]: entry for entry in entries}.values():
        partitions = entry["partitions"]
        epochs = (entry.get("assignmentEpochs") or []) if epoch is not None else []
        if len(epochs) != len(partitions):  # no epochs, or not one per partition: the member's epoch applies to all
            epochs = [epoch] * len(partitions)
        yield entry[name], dict(zip(partitions, epochs, strict=True))


@dataclass(frozen=True)
class _SubscriptionSources:
    """The records of a group that give its members more topics than those by name (reference 1.4 to 1.6)."""

    expressions: Mapping[str, Cell]
    topology: Cell | None

    @classmethod
    def of(cls, cells: Iterable[Cell]) -> Self:
        """Find them among the records of a consumer, share or streams group."""
        found = [cell for cell in cells if cell.key_type in (_REGEX, _TOPOLOGY)]
        expressions = {cell.key["regularExpression"]: cell for cell in found if cell.key_type == _REGEX}
        return cls(expressions, next((cell for cell in found if cell.key_type == _TOPOLOGY), None))

    def regex_record(self, metadata: Cell | None) -> Cell | None:
        """Return the record that resolves a member's regular expression. `metadata` is the member's metadata record."""
        return None if metadata is None else self.expressions.get(metadata.value.get("subscribedTopicRegex") or "")


def _subscriptions(group_id: str, member_id: str, metadata: Cell, sources: _SubscriptionSources) -> list[Row]:
    """Return the rows of a member of a consumer, share or streams group.

    A topic that a member subscribes to by name and in another way gives one row: the one by name.
    """
    found: dict[str, tuple[Cell, str]] = {}
    if sources.topology is not None:
        found |= dict.fromkeys(_source_topics(sources.topology), (sources.topology, "topology"))
    regex = sources.regex_record(metadata)
    if regex is not None:
        found |= dict.fromkeys(regex.value["topics"], (regex, "regex"))
    found |= dict.fromkeys(metadata.value.get("subscribedTopicNames", ()), (metadata, "name"))
    return [
        subscription_row(record, group_id=group_id, member_id=member_id, topic=topic, subscribed_by=subscribed_by)
        for topic, (record, subscribed_by) in sorted(found.items())
    ]


def _source_topics(topology: Cell) -> Iterator[str]:
    for subtopology in topology.value["subtopologies"] or ():
        yield from subtopology["sourceTopics"]
        yield from (topic["name"] for topic in subtopology["repartitionSourceTopics"])


CONSUMER = ModernType(
    "Consumer", 3, 5, 6, 7, 8, frozenset({4, 16}), _consumer_member, _target_partitions, _current_partitions
)
SHARE = ModernType("Share", 11, 10, 12, 13, 14, frozenset({15}), _share_member, _target_partitions, _current_partitions)
STREAMS = ModernType(
    "Streams", 17, 19, 20, 21, 22, frozenset({_TOPOLOGY}), _streams_member, _target_tasks, _current_tasks
)
MODERN_TYPES = (CONSUMER, SHARE, STREAMS)
