"""A classic group (Kafka's GroupMetadata and ClassicGroup), and how its one record is read (reference 4.6, 5.5).

Also the states of groups of all types, named as in Kafka's Admin API.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from offsetstream.codec.embedded_protocols import decode_assignment, decode_subscription
from offsetstream.codec.serde import JsonObject
from offsetstream.codec.wire import DecodeError
from offsetstream.coordinator.replay.offsets import ExpirationBase, since_commit
from offsetstream.errors import IllegalStateError

CONSUMER_PROTOCOL_TYPE = "consumer"
# A broker reads every subscription as version 0, because all versions start with its fields (reference 3.1).
_READ_AS_VERSION_0 = b"\0\0"


class GroupState(StrEnum):
    """All group states of Kafka's Admin API. Which of them a group can have depends on its type."""

    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"


_PREPARING, _COMPLETING = GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE
_STABLE, _DEAD, _EMPTY = GroupState.STABLE, GroupState.DEAD, GroupState.EMPTY

_VALID_PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    _PREPARING: frozenset({_STABLE, _COMPLETING, _EMPTY}),
    _COMPLETING: frozenset({_PREPARING}),
    _STABLE: frozenset({_COMPLETING}),
    _DEAD: frozenset({_STABLE, _PREPARING, _COMPLETING, _EMPTY, _DEAD}),
    _EMPTY: frozenset({_PREPARING}),
}
"""For each state of a classic group, the states that it may follow (reference 9.2)."""


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """A member as in the group's record: timeouts in ms, bytes of the chosen protocol, bytes of the assignment."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    subscription: bytes
    assignment: bytes

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics of the subscription. Raises DecodeError if the bytes are not a subscription."""
        return frozenset(decode_subscription(_READ_AS_VERSION_0 + self.subscription[2:])["topics"])

    def assigned(self) -> list[JsonObject]:
        """Return the assignment, sorted by topic; empty for another protocol. Raises DecodeError for damaged bytes."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or not self.assignment:
            return []
        topics: dict[str, set[int]] = {}
        for entry in decode_assignment(self.assignment)["assignedPartitions"]:
            topics.setdefault(entry["topic"], set()).update(entry["partitions"])
        return [{"topic": topic, "partitions": sorted(topics[topic])} for topic in sorted(topics)]


class ClassicGroup:
    """A group of the classic protocol, or one with offsets only (simple: no protocol type, no members)."""

    type_name = "Classic"

    def __init__(self, group_id: str, state: GroupState = GroupState.EMPTY, now_ms: int | None = None) -> None:
        self.group_id = group_id
        self.state = state
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.current_state_timestamp_ms = now_ms
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}

    @property
    def is_simple(self) -> bool:
        """Whether a group of a newer type may replace it in a replay (ClassicGroup.isSimpleGroup)."""
        return self.protocol_type is None and not self.members

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether its members are consumers, so that their subscriptions can be read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def add(self, member: ClassicMember) -> None:
        """Add a member. The first member sets the protocol type, and becomes the leader if there is none.

        Raises IllegalStateError for another protocol type, or for an instance id that another member has.
        """
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.protocol_type != member.protocol_type:
            raise IllegalStateError(f"group {self.group_id!r}: member {member.member_id!r} has another protocol type")
        if member.group_instance_id is not None:
            if member.group_instance_id in self.static_members:
                raise IllegalStateError(
                    f"group {self.group_id!r}: a second member has the instance id {member.group_instance_id!r}"
                )
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member

    def transition_to(self, state: GroupState, now_ms: int | None = None) -> None:
        """Change the state. Raises IllegalStateError if the new state may not follow the current one."""
        if self.state not in _VALID_PREVIOUS_STATES.get(state, ()):
            raise IllegalStateError(f"group {self.group_id!r} cannot go from {self.state} to {state}")
        self.state = state
        self.current_state_timestamp_ms = now_ms

    def init_next_generation(self, protocol_name: str | None = None, now_ms: int | None = None) -> None:
        """End a rebalance: start the next generation with the chosen protocol, or become Empty without members."""
        target = GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY
        self.transition_to(target, now_ms)
        self.generation += 1
        self.protocol_name = protocol_name if self.members else None

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that the members subscribe to; None if they are unknown (reference 4.6)."""
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        try:
            return frozenset().union(*(member.subscribed_topics() for member in self.members.values()))
        except DecodeError:
            return None

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Whether a member subscribes to the topic. True for every topic if the topics of consumers are unknown."""
        topics = self.subscribed_topics()
        return self.uses_consumer_protocol if topics is None else topic in topics

    def expiration_base(self) -> ExpirationBase | None:
        """Return the time from which its offsets' retention counts (reference 4.11). None: they do not expire."""
        if self.protocol_type is None:
            return since_commit
        if self.state is GroupState.EMPTY:
            empty_since_ms = self.current_state_timestamp_ms
            return since_commit if empty_since_ms is None else lambda _: empty_since_ms
        topics_are_known = self.uses_consumer_protocol and self.subscribed_topics() is not None
        return since_commit if topics_are_known and self.state is GroupState.STABLE else None

    def describe(self, topic_names: Mapping[str, str]) -> JsonObject:  # noqa: ARG002 - its topics have names, not ids
        """Return the group as `offsetstream replay` prints it."""
        return {
            "group_id": self.group_id,
            "type": self.type_name,
            "state": str(self.state),
            "protocol_type": self.protocol_type or None,
            "protocol": self.protocol_name,
            "generation": self.generation,
            "leader": self.leader_id,
            "members": [_described(self.members[member_id]) for member_id in sorted(self.members)],
        }


def classic_group_from_value(group_id: str, version: int, value: JsonObject) -> ClassicGroup:
    """Build the group of a GroupMetadataValue: Stable with members, Empty without. The log has no rebalances.

    Raises IllegalStateError where a broker's load fails (reference 4.6).
    """
    group = ClassicGroup(group_id, GroupState.STABLE if value["members"] else GroupState.EMPTY)
    group.generation = value["generation"]
    group.protocol_type = value["protocolType"] or None
    group.protocol_name = value["protocol"]
    group.leader_id = value["leader"]
    timestamp = value.get("currentStateTimestamp", -1)
    group.current_state_timestamp_ms = None if timestamp == -1 else timestamp
    for member in _members(version, value["protocolType"], value["members"]):
        group.add(member)
    return group


def _members(version: int, protocol_type: str, members: Iterable[JsonObject]) -> Iterable[ClassicMember]:
    for member in members:
        session_timeout = member["sessionTimeout"]
        rebalance_timeout = -1 if version == 0 else member["rebalanceTimeout"]
        yield ClassicMember(
            member["memberId"],
            member.get("groupInstanceId"),
            member["clientId"],
            member["clientHost"],
            session_timeout if rebalance_timeout == -1 else rebalance_timeout,
            session_timeout,
            protocol_type,
            member["subscription"],
            member["assignment"],
        )


def _described(member: ClassicMember) -> dict[str, Any]:
    described: dict[str, Any] = {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
    }
    try:
        return described | {"assignment": member.assigned()}
    except DecodeError as reason:  # damaged bytes are not an empty assignment
        return described | {"assignment": None, "assignment_error": str(reason)}
