"""Build the tombstones that a coordinator writes when it removes offsets and groups (reference 4.9, 5.6, 5.7)."""

from __future__ import annotations

from collections.abc import Iterable

from offsetstream.codec.records import encode_key
from offsetstream.coordinator.replay.classic_group import ClassicGroup
from offsetstream.coordinator.replay.consumer_group import ConsumerGroup
from offsetstream.coordinator.replay.offsets import TopicPartition
from offsetstream.coordinator.replay.partition_replay import Group
from offsetstream.coordinator.replay.share_group import ShareGroup

# Key types, in the order in which 4.3.1 writes them: one key per member, target assignment or pattern, or one (None).
_CONSUMER = (
    (8, "memberId"),
    (7, "target"),
    (6, None),
    (5, "memberId"),
    (16, "regularExpression"),
    (4, None),
    (3, None),
)
_SHARE = ((14, "memberId"), (13, "target"), (12, None), (10, "memberId"), (15, None), (11, None))
_STREAMS = ((22, "memberId"), (21, "target"), (20, None), (19, "memberId"), (17, None), (23, None))


def offset_tombstone(group_id: str, partition: TopicPartition) -> bytes:
    """Return the key of the tombstone of a committed offset. Its type is always 1, even for a type 0 commit."""
    data = {"group": group_id, "topic": partition.topic, "partition": partition.partition}
    return encode_key({"type": 1, "data": data})


def group_tombstones(group: Group) -> list[bytes]:
    """Return the keys of the tombstones that remove a group, in Kafka's order."""
    if isinstance(group, ClassicGroup):
        return [encode_key({"type": 2, "data": {"group": group.group_id}})]
    order = _CONSUMER if isinstance(group, ConsumerGroup) else _SHARE if isinstance(group, ShareGroup) else _STREAMS
    keys = []
    for key_type, per in order:
        if per is None:
            keys.append(encode_key({"type": key_type, "data": {"groupId": group.group_id}}))
            continue
        name = "memberId" if per == "target" else per
        for value in sorted(_values(group, per)):
            keys.append(encode_key({"type": key_type, "data": {"groupId": group.group_id, name: value}}))
    return keys


def _values(group: Group, per: str) -> Iterable[str]:
    if isinstance(group, ClassicGroup):
        return ()
    if per == "regularExpression":
        return group.resolved_regular_expressions if isinstance(group, ConsumerGroup) else ()
    return group.target_assignment if per == "target" else group.members
