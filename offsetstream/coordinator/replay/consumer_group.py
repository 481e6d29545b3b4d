"""Consumer groups (KIP-848): records 3-8 and 16 (reference 1.4, 5.7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from offsetstream.codec.readers import JsonObject
from offsetstream.coordinator.replay.group_states import GroupState
from offsetstream.coordinator.replay.modern_group import ModernGroup
from offsetstream.coordinator.replay.modern_member import Partitions, TopicMember, read_partitions

_ONLY_IN_3_7 = "assignors"
Place: TypeAlias = tuple[str, int]
"""Topic id and partition."""


class ConsumerMember(TopicMember):
    """A member that speaks the consumer protocol, or the classic one in a group that is being converted."""

    @property
    def uses_classic_protocol(self) -> bool:
        """Whether it speaks the classic protocol: absent, the field has its default, which is a struct, not null."""
        if not self.metadata or _ONLY_IN_3_7 in self.metadata:
            return False
        return self.metadata.get("classicMemberMetadata", {}) is not None

    @property
    def subscribed_topic_regex(self) -> str:
        """The pattern that it subscribes to; empty for none."""
        return self.metadata.get("subscribedTopicRegex") or ""


class ConsumerGroup(ModernGroup[ConsumerMember]):
    """A group whose partitions the coordinator assigns."""

    type_name = "Consumer"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.partitions_are_taken_over = True  # not so in some releases: see Rule
        self.has_subscription_metadata_record = False
        self.resolved_regular_expressions: dict[str, frozenset[str]] = {}
        self.partition_epochs: dict[Place, int] = {}

    @property
    def state(self) -> GroupState:
        """Empty, Assigning, Reconciling or Stable."""
        return self.reconciled_state() if self.members else GroupState.EMPTY

    def new_member(self, member_id: str) -> ConsumerMember:
        """Make a member of which nothing is known yet."""
        return ConsumerMember(member_id)

    def target_from_value(self, value: JsonObject) -> Partitions:
        """Read the partitions by topic id."""
        return read_partitions("topicId", value["topicPartitions"], None)

    def replay_member(self, member_id: str, value: JsonObject | None) -> None:
        """Replay who a member is; one that is removed releases its partitions."""
        member = self.members.get(member_id)
        owned = [] if member is None else list(_places(member))
        epoch = 0 if member is None else _epoch(member)
        if value is not None:
            self._rebook(member_id, owned, epoch, owned, epoch)
        super().replay_member(member_id, value)
        if value is None:
            self._rebook(member_id, owned, epoch, [], epoch)

    def replay_current(self, member_id: str, value: JsonObject | None) -> None:
        """Replay what a member has, and keep the book of who owns which partition at which epoch.

        Compaction may have removed what came between (reference 5.7): a higher epoch takes a partition over, and one
        that was taken over is not released by its former owner. Raises IllegalStateError for a lower or equal epoch;
        in releases that do not know of this also where a partition is taken over.
        """
        updated = self.new_member(member_id)
        if value is not None:
            updated.update_current(value)
        member = self.members.get(member_id, updated)
        owned = [] if member is updated else list(_places(member))
        self._rebook(member_id, owned, _epoch(member), list(_places(updated)), _epoch(updated))
        super().replay_current(member_id, value)

    def replay_regular_expression(self, pattern: str, value: JsonObject | None) -> None:
        """Replay which topics a pattern matches."""
        if value is None:
            self.resolved_regular_expressions.pop(pattern, None)
        else:
            self.resolved_regular_expressions[pattern] = frozenset(value["topics"])

    def replay_partition_metadata(self, value: JsonObject | None) -> None:
        """Replay a record of brokers before 4.1, of which later ones only remember that it is there."""
        self.has_subscription_metadata_record = value is not None

    def subscribed_topics(self) -> frozenset[str]:
        """Return what the members name, and what their patterns match."""
        patterns = {member.subscribed_topic_regex for member in self.members.values()}
        matched = (self.resolved_regular_expressions.get(pattern, frozenset()) for pattern in patterns)
        named = (member.subscribed_topic_names for member in self.members.values())
        return frozenset().union(*named, *matched)

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Whether a member subscribes to the topic."""
        return topic in self.subscribed_topics()

    def _rebook(self, member_id: str, owned: list[Place], epoch: int, taken: list[Place], new_epoch: int) -> None:
        released = {place for place in owned if self.partition_epochs.get(place) == epoch}
        lost = [] if self.partitions_are_taken_over else [place for place in owned if place not in released]
        if lost:
            raise self._illegal(
                f"member {member_id!r} releases partition {lost[0][1]} of topic {lost[0][0]} of epoch {epoch}, but it"
                f" is owned at epoch {self.partition_epochs.get(lost[0])}"
            )
        seen: set[Place] = set()
        for place in taken:
            present = self.partition_epochs.get(place)
            is_free = present is None or place in released or (self.partitions_are_taken_over and present < new_epoch)
            if place in seen or not is_free:
                raise self._illegal(
                    f"member {member_id!r} takes partition {place[1]} of topic {place[0]} at epoch {new_epoch},"
                    f" but it is owned at epoch {present}"
                )
            seen.add(place)
        for place in released:
            del self.partition_epochs[place]
        self.partition_epochs.update(dict.fromkeys(taken, new_epoch))


def _epoch(member: ConsumerMember) -> int:
    return member.member_epoch or 0


def _places(member: ConsumerMember) -> Iterator[Place]:
    for by_role in (member.assigned, member.pending_revocation):
        for partitions in by_role.values():
            for topic_id, numbers in partitions.items():
                yield from ((topic_id, number) for number in numbers)
