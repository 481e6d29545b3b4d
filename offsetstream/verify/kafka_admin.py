"""A cluster's answers about groups of every type through Kafka's own Admin client, in the columns of the tables.

Values that the answer lacks are None. Reference 5.10 describes the brokers' answers.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError

from offsetstream.cluster.java_client import java_admin, optional_text, root_cause, type_of_listed
from offsetstream.verify.answers import Answers, Row

_DESCRIBE = {
    "Classic": "describeClassicGroups",
    "Consumer": "describeConsumerGroups",
    "Share": "describeShareGroups",
    "Streams": "describeStreamsGroups",
}
# Errors of Kafka's client for member bytes that are not the consumer protocol.
_UNREADABLE = {"BufferUnderflowException", "SchemaException"}


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
