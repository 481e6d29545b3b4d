"""The new coordinator's replay, record by record (reference 5.2-5.7): the groups and offsets of one partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from offsetstream.codec.record_batches import NO_PRODUCER, ControlType, RecordBatch, control_type
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
    """A shard: what GroupMetadataManager and OffsetMetadataManager of the Java coordinator hold of a partition.

    `rules` are those of its release.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.known_types = NEW_TYPES if Rule.STREAMS_RECORDS_ARE_KNOWN in rules else NEW_TYPES - STREAMS_TYPES
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetsStore()

    def replay_control_batch(self, batch: RecordBatch) -> None:
        """End the producer's transaction at each COMMIT or ABORT; other control records mean nothing."""
        for record in batch.records:
            marker = control_type(record)
            if marker in (ControlType.COMMIT, ControlType.ABORT):
                self.offsets.complete_transaction(batch.producer_id, is_commit=marker == ControlType.COMMIT)

    def replay_record(self, record: DecodedRecord, batch: RecordBatch) -> None:
        """Replay one record; raises IllegalStateError where a broker's load fails."""
        if record.key_type in (0, 1):
            self._replay_offset_commit(record, batch.producer_id)
        else:
            _REPLAYS[record.key_type](self, record)

    def publish(self, now_ms: int) -> str | None:  # noqa: ARG002 - nothing is blocked
        """Do nothing: what was replayed is visible."""
        return None

    def add(self, group: Group) -> None:
        """Hold a group; no group of its id is held."""
        self.groups[group.group_id] = group

    def remove(self, group_id: str) -> None:
        """Forget a group and its offsets."""
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
            self.offsets.of(record.group_id).committed[partition] = commit
        else:
            self.offsets.open_transaction(producer_id, record.group_id)[partition] = commit

    def _replay_group_metadata(self, record: DecodedRecord) -> None:
        # Whatever group has that id goes, of any type; its offsets stay (reference 5.5).
        if record.value is None:
            self.groups.pop(record.group_id, None)
        else:
            self.groups[record.group_id] = classic_group_from_value(record.group_id, record.version, record.value)

    def persisted_group(self, kind: type[Modern], group_id: str, *, create: bool) -> Modern | None:
        """Return the group (getOrMaybeCreatePersisted…Group); None if there is none and `create` is false.

        A simple classic group, made for offsets or by a first JoinGroup, gives way to a consumer or a streams group,
        also at a tombstone. By a rule that is proposed any other classic group gives way to a consumer group, and is
        as none at a tombstone. Raises IllegalStateError if a group of another type has the id.
        """
        present = self.groups.get(group_id)
        if isinstance(present, kind):
            return present
        is_simple = isinstance(present, ClassicGroup) and present.is_simple
        gives_way = isinstance(present, ClassicGroup) and self._gives_way(present, kind)
        if not create and (present is None or (gives_way and not is_simple)):
            return None
        if present is not None and not gives_way:
            raise IllegalStateError(
                f"group {group_id!r} is a {present.type_name} group, but the record is of a {kind.type_name} group"
            )
        group = kind(group_id)
        if isinstance(group, ConsumerGroup):
            group.partitions_are_taken_over = Rule.PARTITIONS_ARE_TAKEN_OVER in self.rules
        self.groups[group_id] = group
        return group

    def _gives_way(self, present: ClassicGroup, kind: type[Modern]) -> bool:
        if kind is ConsumerGroup:
            return present.is_simple or Rule.CONSUMER_GROUP_REPLACES_CLASSIC in self.rules
        return kind is StreamsGroup and present.is_simple and Rule.STREAMS_GROUP_REPLACES_SIMPLE in self.rules


def _of_group(kind: type[Modern], replay: Callable[[Modern, DecodedRecord], None]) -> _Replay:
    def replayed(shard: NewReplay, record: DecodedRecord) -> None:
        group = shard.persisted_group(kind, record.group_id, create=record.value is not None)
        if group is not None:
            replay(group, record)

    return replayed


def _metadata(kind: type[Modern]) -> _Replay:
    def replayed(shard: NewReplay, record: DecodedRecord) -> None:
        group = shard.persisted_group(kind, record.group_id, create=record.value is not None)
        if group is None:
            return
        if record.value is not None:
            group.replay_metadata(record.value)
        else:
            group.require_deletable()
            del shard.groups[record.group_id]

    return replayed


def _common(kind: type[Modern], metadata: int, member: int, target_epoch: int, target: int) -> dict[int, _Replay]:
    return {
        metadata: _metadata(kind),
        member: _of_group(kind, lambda group, r: group.replay_member(r.key["memberId"], r.value)),
        target_epoch: _of_group(kind, lambda group, r: group.replay_target_epoch(r.value)),
        target: _of_group(kind, lambda group, r: group.replay_target(r.key["memberId"], r.value)),
        target + 1: _of_group(kind, lambda group, r: group.replay_current(r.key["memberId"], r.value)),
    }


_REPLAYS: dict[int, _Replay] = {
    2: NewReplay._replay_group_metadata,
    **_common(ConsumerGroup, metadata=3, member=5, target_epoch=6, target=7),
    4: _of_group(ConsumerGroup, lambda group, r: group.replay_partition_metadata(r.value)),
    16: _of_group(ConsumerGroup, lambda group, r: group.replay_regular_expression(r.key["regularExpression"], r.value)),
    **_common(ShareGroup, metadata=11, member=10, target_epoch=12, target=13),
    15: _of_group(ShareGroup, lambda group, r: group.replay_state_partition_metadata(r.value)),
    **_common(StreamsGroup, metadata=17, member=19, target_epoch=20, target=21),
    23: _of_group(StreamsGroup, lambda group, r: group.replay_topology(r.value)),
}
