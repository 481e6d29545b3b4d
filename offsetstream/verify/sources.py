"""What the tables have and what a cluster answers about its groups, in the same columns.

The cluster answers through Kafka's own Admin client. Values that the answer lacks are None. Reference 5.10 describes
the brokers' answers.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError

from offsetstream.cluster.java_client import java_admin, optional_text, root_cause, type_of_listed
from offsetstream.tables.filters import Filters
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.placement import Placement, read_placement

Row = dict[str, Any]
_Of = Mapping[Filters, list[int]]  # offsets partitions by their filters
_COLUMNS = {
    "groups": "group_id group_type state is_simple protocol_type protocol group_epoch assignment_epoch member_count",
    "group_members": (
        "group_id member_id group_instance_id client_id client_host member_epoch is_classic_protocol process_id "
        "user_endpoint topology_epoch"
    ),
    "member_assignments": "group_id member_id kind subtopology_id topic_id topic partition",
    "committed_offsets": "group_id topic partition committed_offset leader_epoch metadata",
}
_STREAMS_GROUP, _VALIDATED = 17, "validatedTopologyEpoch"
_PARTITIONS = ["offsets_partition", "load_state", "coordinator_id", "next_offset", "filters"]
_DESCRIBE = {
    "Classic": "describeClassicGroups",
    "Consumer": "describeConsumerGroups",
    "Share": "describeShareGroups",
    "Streams": "describeStreamsGroups",
}
# Errors of Kafka's client for member bytes that are not the consumer protocol.
_UNREADABLE = {"BufferUnderflowException", "SchemaException"}


@dataclass(frozen=True)
class TableRows:
    """Rows of the state tables in their group's own offsets partition, by table, and the rows of the partitions."""

    rows: dict[str, list[Row]]
    partitions: dict[int, Row]
    deleted_topics: frozenset[str]  # their names and ids: no broker answers for these
    homes: Mapping[str, int] | None = None  # of `Placement`
    not_validated: frozenset[str] = frozenset()  # streams groups whose record does not confirm that their topics exist

    @property
    def placement(self) -> Placement:
        """Return the placement: each group's own offsets partition."""
        return Placement(len(self.partitions), self.homes)


def read_tables(lookup: Lookup) -> TableRows:
    """Read everything to compare, without groups that a change of the partition count left behind.

    Read the positions of the partitions first, since the job writes them last: the rows are then at least as new.
    """
    partitions = {row["offsets_partition"]: row for row in lookup.rows("offsets_partitions", _PARTITIONS)}
    inside = {"in_coordinator_partition": [True]}
    rows = {
        table: lookup.rows(table, ["offsets_partition", *columns.split()], inside)
        for table, columns in _COLUMNS.items()
    }
    topics = lookup.rows("topics", ["topic_id", "topic", "deleted_at"])
    gone = {name for row in topics if row["deleted_at"] is not None for name in (row["topic"], row["topic_id"])}
    gone -= {row["topic"] for row in topics if row["deleted_at"] is None}
    return TableRows(rows, partitions, frozenset(gone), read_placement(lookup).homes, _not_validated(lookup, rows))


def _not_validated(lookup: Lookup, rows: Mapping[str, list[Row]]) -> frozenset[str]:
    groups = [row["group_id"] for row in rows["groups"] if row["state"] == "NotReady"]
    where = {"group_id": groups, "key_type": [_STREAMS_GROUP], "in_coordinator_partition": [True]}
    cells = lookup.rows("group_cells", ["group_id", "value_json"], where) if groups else []
    return frozenset(row["group_id"] for row in cells if _VALIDATED not in json.loads(row["value_json"])["data"])


@dataclass(frozen=True)
class Filtered:
    """What the filters of the tables exclude, and what was therefore removed from the answers.

    `groups` are the filtered groups, `offsets` counts filtered offsets of the other groups, and `bare` are those of the
    other groups that have no offset left.
    """

    groups: set[str] = field(default_factory=set)
    offsets: int = 0
    bare: set[str] = field(default_factory=set)


@dataclass
class Answers:
    """Rows as of `groups`, `group_members`, `member_assignments` and `committed_offsets`.

    `gone` are groups that were listed and then disappeared; `unreadable` are groups that the client failed to read,
    with its error. Neither has rows. `tells_target` in a member's row: whether the assignments include its target
    assignment.
    """

    groups: list[Row] = field(default_factory=list)
    members: list[Row] = field(default_factory=list)
    assignments: list[Row] = field(default_factory=list)
    offsets: list[Row] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    unreadable: dict[str, str] = field(default_factory=dict)
    filtered: Filtered = field(default_factory=Filtered)


@contextmanager
def kafka_admin(bootstrap_server: str, properties: Mapping[str, str]) -> Iterator[KafkaAdmin]:
    """Yield Kafka's own Admin client in a separate JVM. Raises what `java_admin` raises."""
    with java_admin(bootstrap_server, properties) as (jvm, client):
        yield KafkaAdmin(jvm, client)


class KafkaAdmin:
    """Kafka's Admin client for groups."""

    def __init__(self, jvm: Any, client: Any) -> None:
        self.jvm, self.client = jvm, client

    def list_groups(self) -> list[Row]:
        """Return all groups that the cluster lists."""
        found = self.client.listGroups().all().get()
        rows = [
            {
                "group_id": group.groupId(),
                "group_type": type_of_listed(group),
                "state": optional_text(group.groupState()),
                # Brokers before 3.8 report no group type; Kafka's client then treats every group as not simple.
                "is_simple": group.isSimpleConsumerGroup() if group.type().isPresent() else None,
                "protocol_type": group.protocol() or None,
            }
            for group in found
        ]
        return sorted(rows, key=lambda row: row["group_id"])

    def answers(self, only: Container[str] | None = None) -> Answers:
        """Return the cluster's answers about all groups that it lists, or only about those in `only`.

        Groups that disappear meanwhile and groups that the client cannot read have no rows.
        """
        found = Answers()
        listed = [row for row in self.list_groups() if only is None or row["group_id"] in only]
        for group_type, method in _DESCRIBE.items():
            of_type = {row["group_id"]: row for row in listed if row["group_type"] == group_type}
            for group_id, description in self._descriptions(method, list(of_type), found.unreadable):
                row = of_type[group_id]
                if description is None or _state(row, description) == "Dead":  # so in older brokers
                    found.gone.add(group_id)
                else:
                    _add(found, row, description)
        not_asked = found.gone | found.unreadable.keys()
        asked = (row for row in listed if row["group_type"] != "Share" and row["group_id"] not in not_asked)
        found.offsets = self.committed_offsets(row["group_id"] for row in asked)
        for rows in (found.groups, found.members, found.assignments, found.offsets):
            rows.sort(key=_sort_key)
        return found

    def _descriptions(
        self, method: str, group_ids: list[str], unreadable: dict[str, str]
    ) -> Iterator[tuple[str, Any | None]]:
        """Yield the description of each group, None for one that is gone. Unreadable groups are added to `unreadable`.

        If one group in a broker's answer is unreadable, the client fails all of them: query each half again.
        """
        described = getattr(self.client, method)(group_ids).describedGroups() if group_ids else {}
        failed = []
        for group_id in group_ids:
            try:
                yield group_id, _unless_gone(described[group_id])
            except Py4JJavaError as error:
                if (name := root_cause(error).getClass().getSimpleName()) not in _UNREADABLE:
                    raise
                failed.append((group_id, name))
        if len(failed) == 1 == len(group_ids):
            unreadable.update(failed)
            return
        ids = [group_id for group_id, _ in failed]
        for half in (ids[: len(ids) // 2], ids[len(ids) // 2 :]):
            if half:
                yield from self._descriptions(method, half, unreadable)

    def committed_offsets(self, group_ids: Iterable[str]) -> list[Row]:
        """Return all committed offsets of the groups, without those of open transactions."""
        options = self.jvm.org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec
        asked = {group_id: options() for group_id in group_ids}
        told = self.client.listConsumerGroupOffsets(asked)
        found = {each: _unless_gone(told.partitionsToOffsetAndMetadata(each)) or {} for each in asked}
        return [
            {
                "group_id": group_id,
                "topic": place.topic(),
                "partition": place.partition(),
                "committed_offset": committed.offset(),
                "leader_epoch": _value(committed.leaderEpoch()),
                "metadata": committed.metadata(),
            }
            for group_id, offsets in found.items()
            for place, committed in offsets.items()
            if committed is not None
        ]

    def topic_names(self) -> dict[str, str]:
        """Return the names of all topics by their ids."""
        options = self.jvm.org.apache.kafka.clients.admin.ListTopicsOptions().listInternal(True)
        found = self.client.listTopics(options).namesToListings().get()
        return {listing.topicId().toString(): name for name, listing in found.items()}


def _unless_gone(future: Any) -> Any | None:
    """Return the broker's answer about a group, None if the group does not exist (any more)."""
    try:
        return future.get()
    except Py4JJavaError as error:
        if root_cause(error).getClass().getSimpleName() != "GroupIdNotFoundException":
            raise
        return None


def _state(listed: Row, description: Any) -> str:
    state: str = (description.state() if listed["group_type"] == "Classic" else description.groupState()).toString()
    return state


def _add(found: Answers, listed: Row, description: Any) -> None:
    modern = listed["group_type"] != "Classic"
    found.groups.append(
        {
            **listed,
            "state": _state(listed, description),
            "protocol": None if modern else description.protocolData() or None,
            "group_epoch": _value(description.groupEpoch()) if modern else None,
            "assignment_epoch": _value(description.targetAssignmentEpoch()) if modern else None,
            "member_count": description.members().size(),
            "coordinator_id": description.coordinator().id(),
        }
    )
    read = _streams_member if listed["group_type"] == "Streams" else _member
    for member in description.members():
        row, assignments = read(listed["group_type"], member)
        found.members.append({"group_id": listed["group_id"], **row})
        found.assignments += [
            {"group_id": listed["group_id"], "member_id": row["member_id"], **place} for place in assignments
        ]


def _member(group_type: str, member: Any) -> tuple[Row, list[Row]]:
    share = group_type == "Share"
    upgraded = None if share else _value(member.upgraded())
    row = {
        "member_id": member.consumerId(),
        "group_instance_id": None if share else _value(member.groupInstanceId()),
        "client_id": member.clientId(),
        "client_host": member.host(),
        "member_epoch": _value(member.memberEpoch()),
        "is_classic_protocol": None if upgraded is None else not upgraded,
    }
    places = _partitions("assigned", member.assignment())
    target = None if share else _value(member.targetAssignment())
    row["tells_target"] = target is not None
    return row, places + ([] if target is None else _partitions("target", target))


def _streams_member(_type: str, member: Any) -> tuple[Row, list[Row]]:
    endpoint = _value(member.userEndpoint())
    row = {
        "member_id": member.memberId(),
        "group_instance_id": _value(member.instanceId()),
        "client_id": member.clientId(),
        "client_host": member.clientHost(),
        "member_epoch": member.memberEpoch(),
        "is_classic_protocol": member.isClassic(),
        "process_id": member.processId(),
        "user_endpoint": f"{endpoint.host()}:{endpoint.port()}" if endpoint else None,
        "topology_epoch": member.topologyEpoch(),
        "tells_target": True,
    }
    now, target = member.assignment(), member.targetAssignment()
    roles = {"active": "activeTasks", "standby": "standbyTasks", "warmup": "warmupTasks"}
    places = [place for kind, tasks in roles.items() for place in _tasks(kind, getattr(now, tasks)())]
    return row, places + [place for tasks in roles.values() for place in _tasks("target", getattr(target, tasks)())]


def _partitions(kind: str, assignment: Any) -> list[Row]:
    return [
        {"kind": kind, "subtopology_id": None, "topic": place.topic(), "partition": place.partition()}
        for place in assignment.topicPartitions()
    ]


def _tasks(kind: str, tasks: Iterable[Any]) -> list[Row]:
    return [
        {"kind": kind, "subtopology_id": task.subtopologyId(), "topic": None, "partition": partition}
        for task in tasks
        for partition in task.partitions()
    ]


def _value(found: Any) -> Any:
    """Return the value of an Optional (None if empty); an int is returned unchanged."""
    return found if isinstance(found, int) else found.orElse(None)


def _sort_key(row: Row) -> list[str]:
    return [str(value) for value in row.values()]


def filters_of(partitions: Mapping[int, Mapping[str, Any]]) -> _Of:
    """Return the partitions by their filters."""
    found = defaultdict[Filters, list[int]](list)
    for number, row in partitions.items():
        if filters := Filters.of(row.get("filters")):
            found[filters].append(number)
    return found


def filtered_records(decoded: pa.Table, partitions: _Of) -> pa.Array:
    """Return a flag per decoded record of the log: whether the filters of its partition exclude it."""
    found = pa.repeat(pa.scalar(False), decoded.num_rows)
    for filters, numbers in partitions.items():
        is_there = pc.is_in(decoded["offsets_partition"], pa.array(numbers, pa.int32()))
        found = pc.or_(found, pc.and_(is_there, filters.filtered(decoded)))
    return found


def kept_answers(
    answers: Answers, partitions: Mapping[int, Mapping[str, Any]], group_homes: Mapping[str, int] | None = None
) -> Answers:
    """Return a cluster's answers without what the filters exclude; the result also says how much that is.

    `group_homes` are the homes of `Placement`, which does not know filtered groups.
    """
    of = filters_of(partitions)
    if not of:
        return answers
    placement = Placement(len(partitions), group_homes)
    homes = {row["group_id"]: placement.of(row["group_id"]) for row in answers.groups}
    groups, offsets, bare = set[str](), list[Row](), set[str]()
    for filters, numbers in of.items():
        here = {group_id for group_id, home in homes.items() if home is None or home in numbers}
        groups |= _filtered(here, filters.filters_groups)
        own = [row for row in answers.offsets if row["group_id"] in here - groups]
        topics = _filtered({row["topic"] for row in own}, filters.filters_topics)
        offsets += [row for row in own if row["topic"] in topics]
        bare |= {row["group_id"] for row in own} - {row["group_id"] for row in own if row["topic"] not in topics}
    taken = {id(row) for row in offsets}
    kept: dict[str, Any] = {
        name: [row for row in getattr(answers, name) if row["group_id"] not in groups and id(row) not in taken]
        for name in ("groups", "members", "assignments", "offsets")
    }
    return replace(answers, **kept, gone=answers.gone - groups, filtered=Filtered(groups, len(offsets), bare))


def _filtered(names: set[str], is_filtered: Callable[[pa.Array], pa.Array]) -> set[str]:
    some = pa.array(sorted(names), pa.string())
    return set(some.filter(is_filtered(some)).to_pylist())
