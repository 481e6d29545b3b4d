"""Consumer groups (KIP-848): records 3-8 and 16 (reference 1.4, 5.7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from offsetstream.codec.serde import JsonObject
from offsetstream.coordinator.replay.group_states import GroupState
from offsetstream.coordinator.replay.modern_group import ModernGroup
from offsetstream.coordinator.replay.modern_member import Partitions, TopicMember, read_partitions

_ONLY_IN_3_7 = "assignors"
TopicIdPartition: TypeAlias = tuple[str, int]
"""Topic id and partition number."""


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

    def target_from_value(self, value: JsonObject) -> Partitions:
        """Read the partitions, by topic id."""
        return read_partitions("topicId", value["topicPartitions"], None)

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
