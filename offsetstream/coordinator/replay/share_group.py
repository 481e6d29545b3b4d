"""Share groups (KIP-932): records 10-15 (reference 1.5, 5.7). Their delivery state is in another topic."""

from __future__ import annotations

from offsetstream.codec.serde import JsonObject
from offsetstream.coordinator.replay.group_states import GroupState
from offsetstream.coordinator.replay.modern_group import ModernGroup
from offsetstream.coordinator.replay.modern_member import Partitions, TopicMember, read_partitions


class ShareGroup(ModernGroup[TopicMember]):
    """A group whose members share partitions."""

    type_name = "Share"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.state_partition_metadata: JsonObject | None = None

    @property
    def state(self) -> GroupState:
        """Empty or Stable."""
        return GroupState.STABLE if self.members else GroupState.EMPTY

    def new_member(self, member_id: str) -> TopicMember:
        """Create a member without any data."""
        return TopicMember(member_id)

    def target_from_value(self, value: JsonObject) -> Partitions:
        """Read the partitions, by topic id."""
        return read_partitions("topicId", value["topicPartitions"], None)

    def replay_state_partition_metadata(self, value: JsonObject | None) -> None:
        """Replay the partitions for which the share state was initialized."""
        self.state_partition_metadata = value

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Whether a member subscribes to the topic."""
        return any(topic in member.subscribed_topic_names for member in self.members.values())
