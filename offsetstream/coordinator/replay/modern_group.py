"""The common part of consumer, share and streams groups: epochs, members, target assignment (reference 5.7)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from offsetstream.codec.serde import JsonObject
from offsetstream.coordinator.expiration import ExpirationBase, since_commit
from offsetstream.coordinator.replay.group_states import GroupState
from offsetstream.coordinator.replay.modern_member import LEFT_EPOCH, ModernMember
from offsetstream.errors import IllegalStateError

_INITIAL_EPOCH = 1  # of the group and of its target assignment, without a record (4.3.1)
NO_EPOCH = -1

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

    @abstractmethod
    def target_from_value(self, value: JsonObject) -> Any:
        """Read a member's target assignment from the value of its record."""

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
        if self.assignment_epoch != NO_EPOCH:
            raise self._illegal("the group is deleted but still has the epoch of its target assignment")

    def replay_member(self, member_id: str, value: JsonObject | None) -> None:
        """Replay a member's metadata. A tombstone removes the member."""
        if value is not None:
            self.member(member_id).update_metadata(value)
            return
        member = self.members.get(member_id)
        if member is None:
            return
        if member.member_epoch != LEFT_EPOCH:
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
        self.assignment_epoch, self.assignment_timestamp_ms = NO_EPOCH, 0

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
