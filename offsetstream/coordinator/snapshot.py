"""Describe a coordinator's state as plain data: the output of `offsetstream replay`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from offsetstream.codec.serde import JsonObject
from offsetstream.coordinator.replay.offsets import GroupOffsets
from offsetstream.coordinator.replay.partition_replay import Group


def describe_groups(groups: Iterable[Group], topic_names: Mapping[str, str]) -> list[JsonObject]:
    """Describe groups with their members, sorted by group id."""
    return [group.describe(topic_names) for group in sorted(groups, key=lambda group: group.group_id)]


def describe_offsets(offsets: Iterable[tuple[str, GroupOffsets]]) -> list[JsonObject]:
    """List the committed offsets, sorted by group, topic and partition. Times are ms since 1970."""
    return [
        {
            "group_id": group_id,
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": commit.offset,
            "leader_epoch": commit.leader_epoch,
            "metadata": commit.metadata,
            "commit_timestamp": commit.commit_timestamp_ms,
        }
        for group_id, group_offsets in sorted(offsets, key=lambda item: item[0])
        for partition, commit in sorted(group_offsets.committed.items())
    ]
