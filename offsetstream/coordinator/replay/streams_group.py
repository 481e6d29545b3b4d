"""Streams groups (KIP-1071): records 17 and 19-23 (reference 1.6, 5.7)."""

from __future__ import annotations

from offsetstream.codec.readers import JsonObject
from offsetstream.coordinator.replay.group_states import GroupState
from offsetstream.coordinator.replay.modern_group import NO_EPOCH, ModernGroup
from offsetstream.coordinator.replay.modern_member import Partitions, StreamsMember, read_tasks


class StreamsGroup(ModernGroup[StreamsMember]):
    """A group of Kafka Streams instances, whose tasks the coordinator assigns."""

    type_name = "Streams"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.validated_topology_epoch = 0
        self.metadata: JsonObject = {}
        self.topology: JsonObject | None = None

    @property
    def state(self) -> GroupState:
        """Empty, NotReady without the topology that was validated, Assigning, Reconciling or Stable."""
        if not self.members:
            return GroupState.EMPTY
        if self.topology is None or self.topology["epoch"] != self.validated_topology_epoch:
            return GroupState.NOT_READY
        return self.reconciled_state()

    def new_member(self, member_id: str) -> StreamsMember:
        """Make a member of which nothing is known yet."""
        return StreamsMember(member_id)

    def target_from_value(self, value: JsonObject) -> dict[str, Partitions]:
        """Read the tasks by role and subtopology."""
        return read_tasks(value, "Tasks")

    def replay_metadata(self, value: JsonObject) -> None:
        """Replay the group's own record; what only a broker makes use of stays in `metadata`."""
        super().replay_metadata(value)
        self.metadata = value
        self.validated_topology_epoch = value.get("validatedTopologyEpoch", NO_EPOCH)

    def require_deletable(self) -> None:
        """Raise IllegalStateError unless the tombstones of members and target epoch have gone before.

        Target assignments are not looked at here (4.3.1); the tombstone of their epoch has asked for theirs.
        """
        if self.members:
            raise self._illegal(f"the group is deleted but still has {len(self.members)} members")
        if self.assignment_epoch != NO_EPOCH:
            raise self._illegal("the group is deleted but still has the epoch of its target assignment")

    def replay_topology(self, value: JsonObject | None) -> None:
        """Replay the topology."""
        self.topology = value

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Whether the topology of a group with members reads the topic."""
        if not self.members or self.topology is None:
            return False
        return any(
            topic in sub["sourceTopics"] or topic in (source["name"] for source in sub["repartitionSourceTopics"])
            for sub in self.topology["subtopologies"]
        )
