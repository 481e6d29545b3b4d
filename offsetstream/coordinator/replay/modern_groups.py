"""Consumer (KIP-848), share (KIP-932) and streams (KIP-1071) groups: epochs, members, assignments (reference 5.7).

Their records are 3-8 and 16, 10-15, and 17 and 19-23 (reference 1.4-1.6). The delivery state of share groups is in
another topic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from offsetstream.codec.serde import JsonObject
from offsetstream.coordinator.replay.classic_group import GroupState
from offsetstream.coordinator.replay.offsets import ExpirationBase, since_commit
from offsetstream.errors import IllegalStateError

_INITIAL_EPOCH = 1  # of the group and of its target assignment, without a record (4.3.1)
_NO_EPOCH = -1
_LEFT_EPOCH = -1
_UNKNOWN, _STABLE = "UNKNOWN", "STABLE"
_TASKS = ("active", "standby", "warmup")
_ONLY_IN_3_7 = "assignors"

Partitions: TypeAlias = dict[str, dict[int, int | None]]
"""By topic id or subtopology id: the partitions, each with the epoch at which it was assigned."""
TopicIdPartition: TypeAlias = tuple[str, int]
"""Topic id and partition number."""


class ModernMember(ABC):
    """A member. `member_state` is from Kafka's MemberState; `assigned` and `pending_revocation` are by task role."""

    states: ClassVar[Mapping[int, str]]
    initial: ClassVar[tuple[int | None, int | None, str | None]] = (0, -1, _STABLE)

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
        self.member_epoch = self.previous_member_epoch = _LEFT_EPOCH
        self.assigned, self.pending_revocation = {}, {}

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has its part of that target assignment. False if it left temporarily (epoch -2)."""
        return self.member_state == _STABLE and self.member_epoch == assignment_epoch

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
        return self.states.get(value["state"], _UNKNOWN)


Member = TypeVar("Member", bound=ModernMember)


class ModernGroup(ABC, Generic[Member]):
    """A group whose members and assignments have records of their own.

    Each `replay_…` method takes the value of one record type, None for a tombstone. Where a broker's load fails, it
    raises IllegalStateError and changes nothing.
    """

    type_name: ClassVar[str]
    members: dict[str, Member]

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = _INITIAL_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = _INITIAL_EPOCH
        self.assignment_timestamp_ms = 0
        self.members = {}
        self.target_assignment: dict[str, Any] = {}

    @property
    @abstractmethod
    def state(self) -> GroupState:
        """The group's state. It is not in any record: it follows from epochs and members."""

    @abstractmethod
    def new_member(self, member_id: str) -> Member:
        """Create a member without any data."""

    def target_from_value(self, value: JsonObject) -> Any:
        """Read a member's target assignment from the value of its record: partitions, by topic id."""
        return _read_partitions("topicId", value["topicPartitions"], None)

    @abstractmethod
    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Whether the group uses offsets of the topic."""

    def replay_metadata(self, value: JsonObject) -> None:
        """Replay the group's own record."""
        self.group_epoch = value["epoch"]
        self.metadata_hash = value.get("metadataHash", 0)

    def require_deletable(self) -> None:
        """Raise IllegalStateError unless tombstones have already removed everything else of the group."""
        if self.members:
            raise self._illegal(f"the group is deleted but still has {len(self.members)} members")
        if self.target_assignment:
            raise self._illegal(f"the group is deleted but still has {len(self.target_assignment)} target assignments")
        if self.assignment_epoch != _NO_EPOCH:
            raise self._illegal("the group is deleted but still has the epoch of its target assignment")

    def replay_member(self, member_id: str, value: JsonObject | None) -> None:
        """Replay a member's metadata. A tombstone removes the member."""
        if value is not None:
            self.member(member_id).update_metadata(value)
            return
        member = self.members.get(member_id)
        if member is None:
            return
        if member.member_epoch != _LEFT_EPOCH:
            raise self._illegal(f"member {member_id!r} is deleted but its current assignment is not")
        if member_id in self.target_assignment:
            raise self._illegal(f"member {member_id!r} is deleted but its target assignment is not")
        del self.members[member_id]

    def replay_target_epoch(self, value: JsonObject | None) -> None:
        """Replay the epoch of the target assignment."""
        if value is not None:
            self.assignment_epoch = value["assignmentEpoch"]
            self.assignment_timestamp_ms = value.get("assignmentTimestamp", 0)
            return
        if self.target_assignment:
            raise self._illegal("the epoch of the target assignment is deleted but the assignment is not")
        self.assignment_epoch, self.assignment_timestamp_ms = _NO_EPOCH, 0

    def replay_target(self, member_id: str, value: JsonObject | None) -> None:
        """Replay a member's target assignment. The member need not exist yet."""
        if value is None:
            self.target_assignment.pop(member_id, None)
        else:
            self.target_assignment[member_id] = self.target_from_value(value)

    def replay_current(self, member_id: str, value: JsonObject | None) -> None:
        """Replay a member's current assignment. A tombstone removes the assignment, not the member."""
        if value is not None:
            self.member(member_id).update_current(value)
        elif member_id in self.members:
            self.members[member_id].leave()

    def member(self, member_id: str) -> Member:
        """Return a member; create it if it is new."""
        if member_id not in self.members:
            self.members[member_id] = self.new_member(member_id)
        return self.members[member_id]

    def expiration_base(self) -> ExpirationBase | None:
        """Return the time from which its offsets' retention counts: always their commit (reference 5.6)."""
        return since_commit

    def describe(self, topic_names: Mapping[str, str]) -> JsonObject:
        """Return the group as `offsetstream replay` prints it. Topics without a known name are shown by id."""
        return {
            "group_id": self.group_id,
            "type": self.type_name,
            "state": str(self.state),
            "protocol_type": self.type_name.lower(),  # as in the answer to ListGroups
            "protocol": None,  # no record has the assignor that the coordinator chose
            "epoch": self.group_epoch,
            "assignment_epoch": self.assignment_epoch,
            "members": [self.members[member_id].describe(topic_names) for member_id in sorted(self.members)],
        }

    def reconciled_state(self) -> GroupState:
        """Return Assigning, Reconciling or Stable, for a group with members."""
        if self.group_epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        reconciled = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return GroupState.STABLE if reconciled else GroupState.RECONCILING

    def _illegal(self, reason: str) -> IllegalStateError:
        return IllegalStateError(f"group {self.group_id!r}: {reason}")


class TopicMember(ModernMember):
    """A member of a consumer or share group. It has partitions of topics, and no roles."""

    states = {0: _STABLE, 1: "UNREVOKED_PARTITIONS", 2: "UNRELEASED_PARTITIONS"}  # noqa: RUF012 - a constant

    def read_current(self, value: JsonObject) -> tuple[dict[str, Partitions], dict[str, Partitions]]:
        """Read the partitions. In a share group they have no epochs, and none are pending revocation."""
        epoch = max(value["memberEpoch"], 0)
        pending = value.get("partitionsPendingRevocation", [])
        return (
            {"": _read_partitions("topicId", value["assignedPartitions"], epoch)},
            {"": _read_partitions("topicId", pending, epoch)} if pending else {},
        )

    def describe_assignment(self, topic_names: Mapping[str, str]) -> list[JsonObject]:
        """Return the partitions by topic name, or by id if no name is known."""
        return _describe_partitions(self.assigned.get("", {}), topic_names)


class ConsumerMember(TopicMember):
    """A member that uses the consumer protocol, or the classic protocol in a group that is being migrated."""

    @property
    def uses_classic_protocol(self) -> bool:
        """Whether it uses the classic protocol. An absent field has its default, a struct, which means yes."""
        if not self.metadata or _ONLY_IN_3_7 in self.metadata:
            return False
        return self.metadata.get("classicMemberMetadata", {}) is not None

    @property
    def subscribed_topic_regex(self) -> str:
        """The regular expression that it subscribes to; empty if none."""
        return self.metadata.get("subscribedTopicRegex") or ""


class ConsumerGroup(ModernGroup[ConsumerMember]):
    """A group whose partitions are assigned by the coordinator."""

    type_name = "Consumer"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.partitions_are_taken_over = True  # False in some releases: see Rule
        self.has_subscription_metadata_record = False
        self.resolved_regular_expressions: dict[str, frozenset[str]] = {}
        self.partition_epochs: dict[TopicIdPartition, int] = {}

    @property
    def state(self) -> GroupState:
        """Empty, Assigning, Reconciling or Stable."""
        return self.reconciled_state() if self.members else GroupState.EMPTY

    def new_member(self, member_id: str) -> ConsumerMember:
        """Create a member without any data."""
        return ConsumerMember(member_id)

    def replay_member(self, member_id: str, value: JsonObject | None) -> None:
        """Replay a member's metadata. A tombstone removes the member and releases its partitions."""
        member = self.members.get(member_id)
        owned = [] if member is None else list(_topic_id_partitions(member))
        epoch = 0 if member is None else _epoch(member)
        if value is not None:
            self._change_ownership(member_id, owned, epoch, owned, epoch)
        super().replay_member(member_id, value)
        if value is None:
            self._change_ownership(member_id, owned, epoch, [], epoch)

    def replay_current(self, member_id: str, value: JsonObject | None) -> None:
        """Replay a member's current assignment, and update which partition is owned at which epoch.

        Compaction may have removed records in between (reference 5.7). So a higher epoch takes over a partition, and
        its former owner does not release it afterwards. Raises IllegalStateError for a lower or equal epoch. Releases
        without this rule also raise it if a partition would be taken over.
        """
        updated = self.new_member(member_id)
        if value is not None:
            updated.update_current(value)
        member = self.members.get(member_id, updated)
        owned = [] if member is updated else list(_topic_id_partitions(member))
        self._change_ownership(member_id, owned, _epoch(member), list(_topic_id_partitions(updated)), _epoch(updated))
        super().replay_current(member_id, value)

    def replay_regular_expression(self, pattern: str, value: JsonObject | None) -> None:
        """Replay the topics that a regular expression matches."""
        if value is None:
            self.resolved_regular_expressions.pop(pattern, None)
        else:
            self.resolved_regular_expressions[pattern] = frozenset(value["topics"])

    def replay_partition_metadata(self, value: JsonObject | None) -> None:
        """Replay a record of brokers before 4.1. Later brokers only remember whether it exists."""
        self.has_subscription_metadata_record = value is not None

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that members subscribe to by name, and those that their regular expressions match."""
        patterns = {member.subscribed_topic_regex for member in self.members.values()}
        matched = (self.resolved_regular_expressions.get(pattern, frozenset()) for pattern in patterns)
        named = (member.subscribed_topic_names for member in self.members.values())
        return frozenset().union(*named, *matched)

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Whether a member subscribes to the topic."""
        return topic in self.subscribed_topics()

    def _change_ownership(
        self, member_id: str, owned: list[TopicIdPartition], epoch: int, taken: list[TopicIdPartition], new_epoch: int
    ) -> None:
        released = {partition for partition in owned if self.partition_epochs.get(partition) == epoch}
        lost = [] if self.partitions_are_taken_over else [partition for partition in owned if partition not in released]
        if lost:
            raise self._illegal(
                f"member {member_id!r} releases partition {lost[0][1]} of topic {lost[0][0]} at epoch {epoch}, but it"
                f" is owned at epoch {self.partition_epochs.get(lost[0])}"
            )
        checked: set[TopicIdPartition] = set()
        for partition in taken:
            owner_epoch = self.partition_epochs.get(partition)
            is_free = (
                owner_epoch is None
                or partition in released
                or (self.partitions_are_taken_over and owner_epoch < new_epoch)
            )
            if partition in checked or not is_free:
                raise self._illegal(
                    f"member {member_id!r} takes partition {partition[1]} of topic {partition[0]} at epoch {new_epoch},"
                    f" but it is owned at epoch {owner_epoch}"
                )
            checked.add(partition)
        for partition in released:
            del self.partition_epochs[partition]
        self.partition_epochs.update(dict.fromkeys(taken, new_epoch))


def _epoch(member: ConsumerMember) -> int:
    return member.member_epoch or 0


def _topic_id_partitions(member: ConsumerMember) -> Iterator[TopicIdPartition]:
    for by_role in (member.assigned, member.pending_revocation):
        for partitions in by_role.values():
            for topic_id, numbers in partitions.items():
                yield from ((topic_id, number) for number in numbers)


class ShareGroup(ModernGroup[TopicMember]):
    """A group whose members share partitions."""

    type_name = "Share"

    @property
    def state(self) -> GroupState:
        """Empty or Stable."""
        return GroupState.STABLE if self.members else GroupState.EMPTY

    def new_member(self, member_id: str) -> TopicMember:
        """Create a member without any data."""
        return TopicMember(member_id)

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Whether a member subscribes to the topic."""
        return any(topic in member.subscribed_topic_names for member in self.members.values())


class StreamsMember(ModernMember):
    """A member of a streams group. It has tasks of subtopologies, in three roles."""

    states = {1: _STABLE, 2: "UNREVOKED_TASKS", 3: "UNRELEASED_TASKS"}  # noqa: RUF012 - a constant
    initial = (None, None, None)

    def read_current(self, value: JsonObject) -> tuple[dict[str, Partitions], dict[str, Partitions]]:
        """Read the tasks. Only active tasks have epochs."""
        epoch: int = value["memberEpoch"]
        return _read_tasks(value, "Tasks", epoch), _read_tasks(value, "TasksPendingRevocation", epoch)

    def describe_assignment(self, topic_names: Mapping[str, str]) -> list[JsonObject]:  # noqa: ARG002 - has no topics
        """Return the tasks by role and subtopology."""
        return [
            {"role": role, "subtopology_id": subtopology, "partitions": sorted(self.assigned[role][subtopology])}
            for role in sorted(self.assigned)
            for subtopology in sorted(self.assigned[role])
        ]


class StreamsGroup(ModernGroup[StreamsMember]):
    """A group of Kafka Streams instances. The coordinator assigns their tasks."""

    type_name = "Streams"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.validated_topology_epoch = 0
        self.metadata: JsonObject = {}
        self.topology: JsonObject | None = None

    @property
    def state(self) -> GroupState:
        """Empty, NotReady (the validated topology is missing), Assigning, Reconciling or Stable."""
        if not self.members:
            return GroupState.EMPTY
        if self.topology is None or self.topology["epoch"] != self.validated_topology_epoch:
            return GroupState.NOT_READY
        return self.reconciled_state()

    def new_member(self, member_id: str) -> StreamsMember:
        """Create a member without any data."""
        return StreamsMember(member_id)

    def target_from_value(self, value: JsonObject) -> dict[str, Partitions]:
        """Read the tasks, by role and subtopology."""
        return _read_tasks(value, "Tasks")

    def replay_metadata(self, value: JsonObject) -> None:
        """Replay the group's own record. `metadata` keeps the fields that only a broker uses."""
        super().replay_metadata(value)
        self.metadata = value
        self.validated_topology_epoch = value.get("validatedTopologyEpoch", _NO_EPOCH)

    def require_deletable(self) -> None:
        """Raise IllegalStateError unless the tombstones of the members and the target epoch came before.

        Target assignments are not checked here (4.3.1): the tombstone of their epoch already requires theirs.
        """
        if self.members:
            raise self._illegal(f"the group is deleted but still has {len(self.members)} members")
        if self.assignment_epoch != _NO_EPOCH:
            raise self._illegal("the group is deleted but still has the epoch of its target assignment")

    def replay_topology(self, value: JsonObject | None) -> None:
        """Replay the topology."""
        self.topology = value

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Whether the group has members and its topology reads the topic."""
        if not self.members or self.topology is None:
            return False
        return any(
            topic in sub["sourceTopics"] or topic in (source["name"] for source in sub["repartitionSourceTopics"])
            for sub in self.topology["subtopologies"]
        )


def _read_tasks(value: JsonObject, suffix: str, epoch: int | None = None) -> dict[str, Partitions]:
    """Read the tasks of the three roles. Roles without tasks are omitted."""
    tasks = {
        role: _read_partitions("subtopologyId", value[f"{role}{suffix}"], epoch if role == "active" else None)
        for role in _TASKS
    }
    return {role: found for role, found in tasks.items() if found}


def _read_partitions(name: str, entries: Iterable[JsonObject], epoch: int | None) -> Partitions:
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


def _describe_partitions(partitions: Partitions, topic_names: Mapping[str, str]) -> list[JsonObject]:
    """Return partitions by topic name, or by id if no name is known, sorted."""
    named: list[tuple[str, Any]] = [(topic_names.get(topic, topic), partitions[topic]) for topic in partitions]
    return [{"topic": topic, "partitions": sorted(numbers)} for topic, numbers in sorted(named, key=lambda e: e[0])]
