"""The new coordinator's groups, beyond the logs of tests/conformance (reference 9.4)."""

from __future__ import annotations

from typing import Any

import pytest

from offsetstream.codec.records import decode_key, encode_record
from offsetstream.coordinator.appends import Errors
from offsetstream.coordinator.cache import GroupMetadataCache
from offsetstream.coordinator.replay.classic_group import GroupState
from offsetstream.coordinator.replay.modern_groups import ConsumerGroup, ShareGroup, StreamsGroup
from tests.conformance.builder import (
    GROUP,
    T1,
    Log,
    Pair,
    classic,
    classic_member,
    consumer_member,
    current,
    new,
    share_current,
    share_member,
    streams_current,
    streams_member,
    streams_target,
    topics,
    topology,
)
from tests.unit.conformance.support import cache_of, group_of

KAFKA_CLASS = "GroupMetadataManagerTest"
TARGET = new(7, {"topicPartitions": topics(T1=[0, 1])}, memberId="m1")
SHARE_TARGET: dict[str, Any] = {"topicPartitions": topics(T1=[0])}
SHARE_STATE: dict[str, Any] = {"initializingTopics": [], "initializedTopics": [], "deletingTopics": []}


def replayed(*pairs: Pair) -> Any:
    """The one group that the records make."""
    return cache_of(*pairs, coordinator="new").get_group(GROUP)


def tombstones(*pairs: Pair) -> tuple[Errors, list[int]]:
    cache = cache_of(*pairs, coordinator="new")
    errors, removal = cache.delete_groups([GROUP])
    return errors[GROUP], [decode_key(key)[0] for key in removal.tombstones.get(0, [])]


@pytest.mark.parametrize(
    "pair",
    [
        share_member(),
        new(10, None, memberId="m1"),
        new(11, {"epoch": 1, "metadataHash": 1}),
        new(11, None),
        new(12, {"assignmentEpoch": 1}),
        new(12, None),
        new(13, SHARE_TARGET, memberId="m1"),
        new(13, None, memberId="m1"),
        share_current(1, T1=[0]),
        new(14, None, memberId="m1"),
        new(15, SHARE_STATE),
        new(15, None),
    ],
)
def test_share_group_records_no_exception_on_replay(pair: Pair) -> None:
    group = replayed(pair)
    assert group is None if pair[1] is None else isinstance(group, ShareGroup)


def test_streams_group_metadata_replay_round_trips_topology_description_epochs() -> None:
    value = {
        "epoch": 5,
        "metadataHash": 7,
        "validatedTopologyEpoch": 3,
        "lastAssignmentConfigs": [{"key": "k", "value": "v"}],
        "storedDescriptionTopologyEpoch": 3,
        "failedDescriptionTopologyEpoch": 2,
    }
    group = replayed(new(17, value))
    assert group.metadata == value
    assert (group.group_epoch, group.metadata_hash, group.validated_topology_epoch) == (5, 7, 3)
    assert encode_record({"type": 17, "data": {"groupId": GROUP}}, {"version": 0, "data": group.metadata}) == new(
        17, value
    )


def test_what_a_consumer_group_remembers() -> None:
    group = replayed(
        consumer_member(serverAssignor="uniform", rackId="r", instanceId="i"),
        new(3, {"epoch": 5, "metadataHash": 9}),
        TARGET,
        new(6, {"assignmentEpoch": 5, "assignmentTimestamp": 77}),
        current(5, T1=[0, 1]),
        new(4, {"topics": []}),
    )
    assert isinstance(group, ConsumerGroup)
    assert (group.metadata_hash, group.assignment_timestamp_ms, group.has_subscription_metadata_record) == (9, 77, True)
    assert group.target_assignment == {"m1": {T1: {0: None, 1: None}}}
    assert group.members["m1"].assigned == {"": {T1: {0: 5, 1: 5}}}
    assert group.partition_epochs == {(T1, 0): 5, (T1, 1): 5}
    assert group.describe({T1: "t"})["members"][0]["assignment"] == [{"topic": "t", "partitions": [0, 1]}]
    assert group.describe({})["members"][0]["group_instance_id"] == "i"


def test_assignment_epochs_are_kept_if_there_is_one_for_each_partition() -> None:
    entry = {"topicId": T1, "partitions": [0, 1]}
    value = {"memberEpoch": 9, "previousMemberEpoch": 8, "state": 1, "partitionsPendingRevocation": []}
    given = replayed(new(8, value | {"assignedPartitions": [entry | {"assignmentEpochs": [3, 4]}]}, memberId="m1"))
    assert given.members["m1"].assigned == {"": {T1: {0: 3, 1: 4}}}
    assert given.members["m1"].member_state == "UNREVOKED_PARTITIONS"
    unknown = replayed(new(8, value | {"state": 55, "assignedPartitions": [entry]}, memberId="m1"))
    assert unknown.members["m1"].member_state == "UNKNOWN"


def test_pending_revocations_are_owned_too() -> None:
    value = {"memberEpoch": 9, "previousMemberEpoch": 8, "state": 1, "assignedPartitions": topics(T1=[0])}
    group = replayed(new(8, value | {"partitionsPendingRevocation": topics(T1=[1])}, memberId="m1"))
    assert group.partition_epochs == {(T1, 0): 9, (T1, 1): 9}
    assert group.members["m1"].pending_revocation == {"": {T1: {1: 9}}}


def test_a_member_that_is_removed_releases_its_partitions() -> None:
    group = replayed(consumer_member(), current(5, T1=[0]), new(8, None, memberId="m1"), new(5, None, memberId="m1"))
    assert group.partition_epochs == {}
    assert group.members == {}


@pytest.mark.parametrize(
    ("reason", "pairs"),
    [
        ("still has 1 members", (consumer_member(), new(3, None))),
        ("still has 1 target assignments", (TARGET, new(3, None))),
        ("still has the epoch", (new(6, {"assignmentEpoch": 3}), new(3, None))),
        ("its current assignment is not", (current(5), new(5, None, memberId="m1"))),
        (
            "its target assignment is not",
            (current(5), TARGET, new(8, None, memberId="m1"), new(5, None, memberId="m1")),
        ),
        ("the assignment is not", (TARGET, new(6, None))),
        (
            "still has the epoch",
            (topology(), new(17, None)),
        ),
        ("still has 1 members", (streams_member(), new(17, None))),
        ("its current assignment is not", (streams_member(), new(19, None, memberId="m1"))),
        ("is a Consumer group, but the record is of a Streams group", (consumer_member(), streams_member())),
        ("is a Classic group, but the record is of a Consumer group", (classic(), consumer_member())),
    ],
)
def test_what_a_load_fails_at(reason: str, pairs: tuple[Pair, ...]) -> None:
    cache = GroupMetadataCache("new")
    result = cache.load_partition(0, Log().write(*pairs).batches)
    assert result.status == "failed"
    assert result.error is not None
    assert reason in result.error


def test_classic_group_on_unloaded_empty_and_preparing_rebalance() -> None:
    cache = cache_of(classic(classic_member()), classic(group="other"), coordinator="new")
    group = group_of(cache)
    group.transition_to(GroupState.PREPARING_REBALANCE)
    other = group_of(cache, "other")
    assert cache.unload_partition(0).groups == 2
    assert (group.state, other.state) == (GroupState.DEAD, GroupState.DEAD)


def test_classic_group_on_unloaded_completing_rebalance() -> None:
    cache = cache_of(classic(classic_member()), coordinator="new")
    group = group_of(cache)
    group.transition_to(GroupState.PREPARING_REBALANCE)
    group.init_next_generation("range")
    cache.unload_partition(0)
    assert group.state is GroupState.DEAD


def test_classic_group_delete() -> None:
    assert tombstones(classic(generation=0)) == (Errors.NONE, [2])
    assert tombstones(classic(classic_member())) == (Errors.NON_EMPTY_GROUP, [])


def test_classic_group_maybe_delete() -> None:
    assert cache_of(classic(generation=0), coordinator="new").cleanup_group_metadata(0).groups == 1
    assert cache_of(classic(classic_member()), coordinator="new").cleanup_group_metadata(0).groups == 0


def test_consumer_group_delete() -> None:
    assert tombstones(new(3, {"epoch": 1})) == (Errors.NONE, [6, 4, 3])
    assert tombstones(consumer_member()) == (Errors.NON_EMPTY_GROUP, [])


def test_consumer_group_maybe_delete() -> None:
    assert cache_of(new(3, {"epoch": 1}), coordinator="new").cleanup_group_metadata(0).groups == 1
    assert cache_of(consumer_member(), coordinator="new").cleanup_group_metadata(0).groups == 0


def test_share_group_delete_tombstones() -> None:
    assert tombstones(new(11, {"epoch": 1, "metadataHash": 1})) == (Errors.NONE, [12, 15, 11])


def test_streams_group_delete_cancels_initial_rebalance_timer() -> None:
    assert tombstones(topology()) == (Errors.NONE, [20, 17, 23])


def test_a_streams_group_becomes_stable() -> None:
    metadata = new(17, {"epoch": 5, "metadataHash": 1, "validatedTopologyEpoch": 1})
    pairs = (streams_member(), topology(1), metadata, streams_target(s=[0]), new(20, {"assignmentEpoch": 4}))
    assert replayed(*pairs).state is GroupState.ASSIGNING
    assert replayed(*pairs, new(20, {"assignmentEpoch": 5})).state is GroupState.RECONCILING
    stable = replayed(*pairs, new(20, {"assignmentEpoch": 5}), streams_current(5, s=[0]))
    assert isinstance(stable, StreamsGroup)
    assert stable.state is GroupState.STABLE
    assert stable.target_assignment == {"m1": {"active": {"s": {0: None}}}}
    assert replayed(*pairs, topology(2)).state is GroupState.NOT_READY
