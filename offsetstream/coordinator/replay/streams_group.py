"""Streams groups (KIP-1071): records 17 and 19-23 (reference 1.6, 5.7)."""

from __future__ import annotations

from offsetstream.codec.serde import JsonObject
from offsetstream.coordinator.replay.group_states import GroupState
from offsetstream.coordinator.replay.modern_group import NO_EPOCH, ModernGroup
from offsetstream.coordinator.replay.modern_member import Partitions, StreamsMember, read_tasks


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
        return read_tasks(value, "Tasks")

    def replay_metadata(self, value: JsonObject) -> None:
        """Replay the group's own record. `metadata` keeps the fields that only a broker uses."""
        super().replay_metadata(value)
        self.metadata = value
        self.validated_topology_epoch = value.get("validatedTopologyEpoch", NO_EPOCH)

    def require_deletable(self) -> None:
        """Raise IllegalStateError unless the tombstones of the members and the target epoch came before.

        Target assignments are not checked here (4.3.1): the tombstone of their epoch already requires theirs.
        """
        if self.members:
            raise self._illegal(f"the group is deleted but still has {len(self.members)} members")
        if self.assignment_epoch != NO_EPOCH:
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
