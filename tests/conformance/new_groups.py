"""Shared by the cases of the new coordinator: groups as a snapshot shows them, and cases of one batch."""

from __future__ import annotations

from typing import Any

from tests.conformance.builder import (
    GROUP,
    T1,
    Log,
    Pair,
    topics,
)
from tests.conformance.case import NEW, Case

OFFSETS, GROUPS = "OffsetMetadataManagerTest", "GroupMetadataManagerTest"
SHARD, LOADER = "GroupCoordinatorShardTest", "CoordinatorLoaderImplTest"
SIMPLE: dict[str, Any] = {"type": "Classic", "state": "Empty", "generation": 0, "protocol_type": None}
CONSUMER: dict[str, Any] = {"type": "Consumer", "state": "Empty", "members": []}
SHARE: dict[str, Any] = {"type": "Share", "state": "Empty", "members": []}
STREAMS: dict[str, Any] = {"type": "Streams", "state": "Empty", "members": []}


def shown(epoch: int | None = 0, previous: int | None = -1, state: str | None = "STABLE", *has: Any) -> dict[str, Any]:
    return {
        "member_id": "m1",
        "group_instance_id": None,
        "client_id": "clientId",
        "client_host": "clientHost",
        "assignment": list(has),
        "member_epoch": epoch,
        "previous_member_epoch": previous,
        "member_state": state,
    }


def replay_case(name: str, *pairs: Pair, kafka_class: str = GROUPS, fails: bool = False, **group: Any) -> Case:
    """A case of one batch. `group` has the fields of the resulting group, if there is one."""
    return Case(kafka_class, name, NEW, Log().write(*pairs).batches, {GROUP: group} if group else {}, fails=fails)


ANON: dict[str, Any] = {"client_id": "", "client_host": ""}
ALL_LEFT = shown(-1, -1)
TARGET: dict[str, Any] = {"topicPartitions": topics(T1=[0, 1])}
T1_0_1 = {"topic": T1, "partitions": [0, 1]}
STREAMS_EPOCH: dict[str, Any] = {"epoch": 5, "metadataHash": 1, "validatedTopologyEpoch": 1}
SHARE_STATE: dict[str, Any] = {"initializingTopics": [], "initializedTopics": [], "deletingTopics": []}
REGEX: dict[str, Any] = {"topics": ["foo"], "version": 1, "timestamp": 1}
TOPIC_METADATA = {"topics": [{"topicId": T1, "topicName": "t", "numPartitions": 1, "partitionMetadata": []}]}
