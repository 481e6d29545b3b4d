"""What a cluster answers about its groups of every type, by Kafka's own Admin client, in the columns of our tables.

What the answer does not give is None. Reference 5.10 tells how brokers answer what.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.kafka.java_clients import JavaClients, Place

Row = dict[str, Any]
_DESCRIBE = {
    "Classic": "describeClassicGroups",
    "Consumer": "describeConsumerGroups",
    "Share": "describeShareGroups",
    "Streams": "describeStreamsGroups",
}


@dataclass
class Answers:
    """Rows as of `groups`, `group_members`, `member_assignments` and `committed_offsets`, each list sorted."""

    groups: list[Row] = field(default_factory=list)
    members: list[Row] = field(default_factory=list)
    assignments: list[Row] = field(default_factory=list)
    offsets: list[Row] = field(default_factory=list)


class JavaAdmin:
    """Kafka's Admin client."""

    def __init__(self, clients: JavaClients) -> None:
        self._clients, self._jvm = clients, clients.jvm
        self.client = clients.admin()

    def list_groups(self) -> list[Row]:
        """All groups that the cluster lists."""
        found = self.client.listGroups().all().get()
        rows = [
            {
                "group_id": group.groupId(),
                "group_type": _text(group.type()),
                "state": _text(group.groupState()),
                "is_simple": group.isSimpleConsumerGroup(),
                "protocol_type": group.protocol() or None,
            }
            for group in found
        ]
        return sorted(rows, key=lambda row: row["group_id"])

    def answers(self, only: Container[str] | None = None) -> Answers:
        """Everything that the cluster tells about the groups that it lists, or about those that are asked for."""
        found = Answers()
        listed = [row for row in self.list_groups() if only is None or row["group_id"] in only]
        for group_type, method in _DESCRIBE.items():
            rows = [row for row in listed if row["group_type"] == group_type]
            described = getattr(self.client, method)([row["group_id"] for row in rows]).all().get()
            for row in rows:
                _add(found, row, described[row["group_id"]])
        found.offsets = self.committed_offsets(row["group_id"] for row in listed if row["group_type"] != "Share")
        return Answers(*(sorted(rows, key=_sort_key) for rows in vars(found).values()))

    def committed_offsets(self, group_ids: Iterable[str]) -> list[Row]:
        """All committed offsets of the groups, those of open transactions aside."""
        options = self._jvm.org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec
        found = self.client.listConsumerGroupOffsets({group_id: options() for group_id in group_ids}).all().get()
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
        """The names of all topics by their ids."""
        options = self._jvm.org.apache.kafka.clients.admin.ListTopicsOptions().listInternal(True)
        found = self.client.listTopics(options).namesToListings().get()
        return {listing.topicId().toString(): name for name, listing in found.items()}

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups of any type that are empty."""
        self.client.deleteConsumerGroups(list(group_ids)).all().get()

    def delete_offsets(self, group_id: str, places: Iterable[Place]) -> None:
        """Delete committed offsets of a group."""
        wanted = {self._clients.place(place) for place in places}
        self.client.deleteConsumerGroupOffsets(group_id, wanted).all().get()

    def alter_offsets(self, group_id: str, offsets: Mapping[Place, int]) -> None:
        """Set committed offsets of an empty group, which is made if it is not there."""
        self.client.alterConsumerGroupOffsets(group_id, self._clients.offsets(offsets)).all().get()


def _add(found: Answers, listed: Row, description: Any) -> None:
    modern = listed["group_type"] != "Classic"
    found.groups.append(
        {
            **listed,
            "state": (description.groupState() if modern else description.state()).toString(),
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
    """The value of an Optional (None if empty), or of what is an int already."""
    return found if isinstance(found, int) else found.orElse(None)


def _text(optional: Any) -> str | None:
    return optional.get().toString() if optional.isPresent() else None


def _sort_key(row: Row) -> list[str]:
    return [str(value) for value in row.values()]
