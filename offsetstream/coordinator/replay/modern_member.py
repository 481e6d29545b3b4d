"""Members of consumer, share and streams groups, with their metadata and assignments (reference 1.4-1.6)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeAlias

from offsetstream.codec.serde import JsonObject

LEFT_EPOCH = -1
UNKNOWN, STABLE = "UNKNOWN", "STABLE"
_TASKS = ("active", "standby", "warmup")

Partitions: TypeAlias = dict[str, dict[int, int | None]]
"""By topic id or subtopology id: the partitions, each with the epoch at which it was assigned."""


class ModernMember(ABC):
    """A member. `member_state` is from Kafka's MemberState; `assigned` and `pending_revocation` are by task role."""

    states: ClassVar[Mapping[int, str]]
    initial: ClassVar[tuple[int | None, int | None, str | None]] = (0, -1, STABLE)

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.metadata: JsonObject = {}
        self.member_epoch, self.previous_member_epoch, self.member_state = self.initial
        self.assigned: dict[str, Partitions] = {}
        self.pending_revocation: dict[str, Partitions] = {}

    @property
    def subscribed_topic_names(self) -> list[str]:
        """The topics that the member subscribes to by name."""
        names: list[str] = self.metadata.get("subscribedTopicNames", [])
        return names

    def update_metadata(self, value: JsonObject) -> None:
        """Set the member's metadata."""
        self.metadata = value

    def update_current(self, value: JsonObject) -> None:
        """Set the member's epochs, state and current assignment."""
        self.member_epoch, self.previous_member_epoch = value["memberEpoch"], value["previousMemberEpoch"]
        self.member_state = self._state(value)
        self.assigned, self.pending_revocation = self.read_current(value)

    def leave(self) -> None:
        """Apply the tombstone of the current assignment: the member has no partitions and epoch -1."""
        self.member_epoch = self.previous_member_epoch = LEFT_EPOCH
        self.assigned, self.pending_revocation = {}, {}

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has its part of that target assignment. False if it left temporarily (epoch -2)."""
        return self.member_state == STABLE and self.member_epoch == assignment_epoch

    @abstractmethod
    def read_current(self, value: JsonObject) -> tuple[dict[str, Partitions], dict[str, Partitions]]:
        """Read the assigned partitions and those pending revocation, by role."""

    @abstractmethod
    def describe_assignment(self, topic_names: Mapping[str, str]) -> list[JsonObject]:
        """Return the current assignment, sorted."""

    def describe(self, topic_names: Mapping[str, str]) -> JsonObject:
        """Return the member as `offsetstream replay` prints it."""
        return {
            "member_id": self.member_id,
            "group_instance_id": self.metadata.get("instanceId"),
            "client_id": self.metadata.get("clientId", ""),
            "client_host": self.metadata.get("clientHost", ""),
            "assignment": self.describe_assignment(topic_names),
            "member_epoch": self.member_epoch,
            "previous_member_epoch": self.previous_member_epoch,
            "member_state": self.member_state,
        }

    def _state(self, value: JsonObject) -> str:
        if "state" not in value:  # record 8 of 3.7: the pending field gives the state (reference 1.4)
            pending = ((1, "partitionsPendingRevocation"), (2, "partitionsPendingAssignment"))
            return self.states[next((number for number, name in pending if value[name]), 0)]
        return self.states.get(value["state"], UNKNOWN)


class TopicMember(ModernMember):
    """A member of a consumer or share group. It has partitions of topics, and no roles."""

    states = {0: STABLE, 1: "UNREVOKED_PARTITIONS", 2: "UNRELEASED_PARTITIONS"}  # noqa: RUF012 - a constant

    def read_current(self, value: JsonObject) -> tuple[dict[str, Partitions], dict[str, Partitions]]:
        """Read the partitions. In a share group they have no epochs, and none are pending revocation."""
        epoch = max(value["memberEpoch"], 0)
        pending = value.get("partitionsPendingRevocation", [])
        return (
            {"": read_partitions("topicId", value["assignedPartitions"], epoch)},
            {"": read_partitions("topicId", pending, epoch)} if pending else {},
        )

    def describe_assignment(self, topic_names: Mapping[str, str]) -> list[JsonObject]:
        """Return the partitions by topic name, or by id if no name is known."""
        return describe_partitions(self.assigned.get("", {}), topic_names)


class StreamsMember(ModernMember):
    """A member of a streams group. It has tasks of subtopologies, in three roles."""

    states = {1: STABLE, 2: "UNREVOKED_TASKS", 3: "UNRELEASED_TASKS"}  # noqa: RUF012 - a constant
    initial = (None, None, None)

    def read_current(self, value: JsonObject) -> tuple[dict[str, Partitions], dict[str, Partitions]]:
        """Read the tasks. Only active tasks have epochs."""
        epoch: int = value["memberEpoch"]
        return read_tasks(value, "Tasks", epoch), read_tasks(value, "TasksPendingRevocation", epoch)

    def describe_assignment(self, topic_names: Mapping[str, str]) -> list[JsonObject]:  # noqa: ARG002 - has no topics
        """Return the tasks by role and subtopology."""
        return [
            {"role": role, "subtopology_id": subtopology, "partitions": sorted(self.assigned[role][subtopology])}
            for role in sorted(self.assigned)
            for subtopology in sorted(self.assigned[role])
        ]


def read_tasks(value: JsonObject, suffix: str, epoch: int | None = None) -> dict[str, Partitions]:
    """Read the tasks of the three roles. Roles without tasks are omitted."""
    tasks = {
        role: read_partitions("subtopologyId", value[f"{role}{suffix}"], epoch if role == "active" else None)
        for role in _TASKS
    }
    return {role: found for role, found in tasks.items() if found}


def read_partitions(name: str, entries: Iterable[JsonObject], epoch: int | None) -> Partitions:
    """Read partitions by topic id or subtopology id. If one is listed twice, the last entry counts, as in a broker.

    If there are no epochs, or not one per partition, `epoch` applies to all.
    """
    found: Partitions = {}
    for entry in entries:
        partitions = entry["partitions"]
        epochs: list[int | None] = (entry.get("assignmentEpochs") or []) if epoch is not None else []
        if len(epochs) != len(partitions):
            epochs = [epoch] * len(partitions)
        found[entry[name]] = dict(zip(partitions, epochs, strict=True))
    return found


def describe_partitions(partitions: Partitions, topic_names: Mapping[str, str]) -> list[JsonObject]:
    """Return partitions by topic name, or by id if no name is known, sorted."""
    named: list[tuple[str, Any]] = [(topic_names.get(topic, topic), partitions[topic]) for topic in partitions]
    return [{"topic": topic, "partitions": sorted(numbers)} for topic, numbers in sorted(named, key=lambda e: e[0])]
