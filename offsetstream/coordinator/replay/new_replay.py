"""The new coordinator's replay of one partition, record by record, into groups and offsets (reference 5.2-5.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from offsetstream.codec.batches import NO_PRODUCER, ControlType, RecordBatch, control_type
from offsetstream.coordinator.replay.classic_group import ClassicGroup, classic_group_from_value
from offsetstream.coordinator.replay.consumer_group import ConsumerGroup
from offsetstream.coordinator.replay.decoded import NEW_TYPES, STREAMS_TYPES, DecodedRecord
from offsetstream.coordinator.replay.offsets import OffsetsStore, TopicPartition, offset_from_value
from offsetstream.coordinator.replay.partition_replay import Group, PartitionReplay
from offsetstream.coordinator.replay.release_rules import Rule, Rules
from offsetstream.coordinator.replay.share_group import ShareGroup
from offsetstream.coordinator.replay.streams_group import StreamsGroup
from offsetstream.errors import IllegalStateError

Modern = TypeVar("Modern", ConsumerGroup, ShareGroup, StreamsGroup)
_Replay: TypeAlias = Callable[["NewReplay", DecodedRecord], None]


class NewReplay(PartitionReplay):
    """The state that the Java coordinator's GroupMetadataManager and OffsetMetadataManager have of one partition.

    `rules` are the rules of its release.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.known_types = NEW_TYPES if Rule.STREAMS_RECORDS_ARE_KNOWN in rules else NEW_TYPES - STREAMS_TYPES
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetsStore()

    def replay_control_batch(self, batch: RecordBatch) -> None:
        """End the producer's transaction at each COMMIT or ABORT. Other control records are ignored."""
        for record in batch.records:
            marker = control_type(record)
            if marker in (ControlType.COMMIT, ControlType.ABORT):
                self.offsets.complete_transaction(batch.producer_id, is_commit=marker == ControlType.COMMIT)

    def replay_record(self, record: DecodedRecord, batch: RecordBatch) -> None:
        """Replay one record. Raises IllegalStateError where a broker's load fails."""
        if record.key_type in (0, 1):
            self._replay_offset_commit(record, batch.producer_id)
        else:
            _REPLAYS[record.key_type](self, record)

    def publish(self, now_ms: int) -> str | None:  # noqa: ARG002 - nothing waits for publication
        """Do nothing: replayed records are visible at once."""
        return None

    def add(self, group: Group) -> None:
        """Add a group. There must be no group with this id."""
        self.groups[group.group_id] = group

    def remove(self, group_id: str) -> None:
        """Remove a group and its offsets."""
        self.groups.pop(group_id, None)
        self.offsets.forget_groups([group_id])

    def _replay_offset_commit(self, record: DecodedRecord, producer_id: int) -> None:
        partition = TopicPartition(record.key["topic"], record.key["partition"])
        if record.value is None:
            self.offsets.remove_everywhere(record.group_id, partition)
            return
        if record.group_id not in self.groups:
            self.groups[record.group_id] = ClassicGroup(record.group_id)
        commit = offset_from_value(record.value, record.offset)
        if producer_id == NO_PRODUCER:
            self.offsets.for_group(record.group_id).committed[partition] = commit
        else:
            self.offsets.open_transaction(producer_id, record.group_id)[partition] = commit

    def _replay_group_metadata(self, record: DecodedRecord) -> None:
        # This replaces or removes a group of any type with this id; its offsets stay (reference 5.5).
        if record.value is None:
            self.groups.pop(record.group_id, None)
        else:
            self.groups[record.group_id] = classic_group_from_value(record.group_id, record.version, record.value)

    def persisted_group(self, kind: type[Modern], group_id: str, *, create: bool) -> Modern | None:
        """Return the group (getOrMaybeCreatePersisted…Group); None if there is none and `create` is false.

        A consumer or streams group replaces a simple classic group, which exists for its offsets or from a first
        JoinGroup. This also happens at a tombstone. By a proposed rule, a consumer group replaces any other classic
        group too, but a tombstone leaves that one as it is. Raises IllegalStateError if a group of another type has the
        id.
        """
        present = self.groups.get(group_id)
        if isinstance(present, kind):
            return present
        is_simple = isinstance(present, ClassicGroup) and present.is_simple
        is_replaced = isinstance(present, ClassicGroup) and self._is_replaced(present, kind)
        if not create and (present is None or (is_replaced and not is_simple)):
            return None
        if present is not None and not is_replaced:
            raise IllegalStateError(
                f"group {group_id!r} is a {present.type_name} group, but the record is of a {kind.type_name} group"
            )
        group = kind(group_id)
        if isinstance(group, ConsumerGroup):
            group.partitions_are_taken_over = Rule.PARTITIONS_ARE_TAKEN_OVER in self.rules
        self.groups[group_id] = group
        return group

    def _is_replaced(self, present: ClassicGroup, kind: type[Modern]) -> bool:
        if kind is ConsumerGroup:
            return present.is_simple or Rule.CONSUMER_GROUP_REPLACES_CLASSIC in self.rules
        return kind is StreamsGroup and present.is_simple and Rule.STREAMS_GROUP_REPLACES_SIMPLE in self.rules


def _into_group(kind: type[Modern], replay: Callable[[Modern, DecodedRecord], None]) -> _Replay:
    def replay_record(shard: NewReplay, record: DecodedRecord) -> None:
        group = shard.persisted_group(kind, record.group_id, create=record.value is not None)
        if group is not None:
            replay(group, record)

    return replay_record


def _group_record(kind: type[Modern]) -> _Replay:
    def replay_record(shard: NewReplay, record: DecodedRecord) -> None:
        group = shard.persisted_group(kind, record.group_id, create=record.value is not None)
        if group is None:
            return
        if record.value is not None:
            group.replay_metadata(record.value)
        else:
            group.require_deletable()
            del shard.groups[record.group_id]

    return replay_record


def _common(kind: type[Modern], metadata: int, member: int, target_epoch: int, target: int) -> dict[int, _Replay]:
    return {
        metadata: _group_record(kind),
        member: _into_group(kind, lambda group, r: group.replay_member(r.key["memberId"], r.value)),
        target_epoch: _into_group(kind, lambda group, r: group.replay_target_epoch(r.value)),
        target: _into_group(kind, lambda group, r: group.replay_target(r.key["memberId"], r.value)),
        target + 1: _into_group(kind, lambda group, r: group.replay_current(r.key["memberId"], r.value)),
    }


_REPLAYS: dict[int, _Replay] = {
    2: NewReplay._replay_group_metadata,
    **_common(ConsumerGroup, metadata=3, member=5, target_epoch=6, target=7),
    4: _into_group(ConsumerGroup, lambda group, r: group.replay_partition_metadata(r.value)),
    16: _into_group(
        ConsumerGroup, lambda group, r: group.replay_regular_expression(r.key["regularExpression"], r.value)
    ),
    **_common(ShareGroup, metadata=11, member=10, target_epoch=12, target=13),
    15: _into_group(ShareGroup, lambda group, r: group.replay_state_partition_metadata(r.value)),
    **_common(StreamsGroup, metadata=17, member=19, target_epoch=20, target=21),
    23: _into_group(StreamsGroup, lambda group, r: group.replay_topology(r.value)),
}
