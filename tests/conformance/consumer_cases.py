"""The logs of Kafka's own tests of the new coordinator's offsets, classic and consumer groups (reference 9.3, 9.4)."""

from __future__ import annotations

from tests.conformance.builder import (
    GROUP,
    T1,
    Log,
    cells,
    classic,
    classic_member,
    commit,
    commits,
    consumer_member,
    current,
    forget,
    new,
)
from tests.conformance.case import NEW, Case
from tests.conformance.new_groups import (
    ALL_LEFT,
    ANON,
    CONSUMER,
    OFFSETS,
    REGEX,
    SIMPLE,
    T1_0_1,
    TARGET,
    TOPIC_METADATA,
    replay_case,
    shown,
)

OFFSET_CASES = (
    Case(
        OFFSETS,
        "testReplay",
        NEW,
        Log()
        .write(commit("foo", 0, 100, leaderEpoch=10), commit("foo", 0, 50, version=4, topicId=T1))
        .write(commit("foo", 1, 200, group="bar", version=1, expireTimestamp=12345))
        .batches,
        {GROUP: SIMPLE, "bar": SIMPLE},
        cells(foo_0=50) | cells("bar", foo_1=200),
    ),
    Case(
        OFFSETS,
        "testTransactionalReplay",
        NEW,
        Log()
        .write(*commits(foo_0=100, foo_1=101), producer=5)
        .write(commit("bar", 0, 102, group="bar"), producer=5)
        .write(*commits(foo_0=103), producer=6)
        .batches,
        {GROUP: SIMPLE, "bar": SIMPLE},
    ),
    Case(
        OFFSETS,
        "testReplayWithTombstoneAndPendingTransactionalOffsets",
        NEW,
        Log()
        .write(*commits(foo_0=100, foo_1=101, foo_2=102), producer=10)
        .write(forget("foo", 1), forget("foo", 2))
        .end(10)
        .batches,
        {GROUP: SIMPLE},
        cells(foo_0=100),
    ),
    Case(
        OFFSETS,
        "testReplayTransactionEndMarkerWithCommit",
        NEW,
        Log()
        .end(1)
        .write(*commits(foo_0=100), producer=5)
        .write(*commits(foo_1=101), producer=6)
        .end(5)
        .abort(6)
        .batches,
        {GROUP: SIMPLE},
        cells(foo_0=100),
    ),
    Case(
        OFFSETS,
        "testReplayTransactionEndMarkerKeepsTheMostRecentCommittedOffset",
        NEW,
        Log().write(*commits(foo_0=100), producer=5).write(*commits(foo_0=101)).end(5).batches,
        {GROUP: SIMPLE},
        cells(foo_0=101),
    ),
)


CONSUMER_CASES = (
    replay_case(
        "testReplayGroupMetadataRecords",
        classic(classic_member("m1", rebalanceTimeout=-1)),
        type="Classic",
        state="Stable",
        leader="m1",
        generation=935,
    ),
    replay_case(
        "testReplayConsumerGroupMemberMetadata",
        consumer_member(),
        **CONSUMER | {"state": "Reconciling", "members": [shown()]},
    ),
    replay_case("testReplayConsumerGroupMemberMetadataTombstone", new(5, None, memberId="m1")),
    replay_case("testReplayConsumerGroupMetadata", new(3, {"epoch": 10, "metadataHash": 1}), **CONSUMER, epoch=10),
    replay_case("testReplayConsumerGroupMetadataTombstone", new(3, None)),
    replay_case("testReplayConsumerGroupPartitionMetadata", new(4, TOPIC_METADATA), **CONSUMER),
    replay_case("testReplayConsumerGroupPartitionMetadataTombstone", new(4, None)),
    replay_case(
        "testReplayConsumerGroupPartitionMetadataTombstoneWithExistentGroup",
        new(4, TOPIC_METADATA),
        new(4, None),
        **CONSUMER,
    ),
    replay_case("testReplayConsumerGroupTargetAssignmentMember", new(7, TARGET, memberId="m1"), **CONSUMER),
    replay_case("testReplayConsumerGroupTargetAssignmentMemberTombstone", new(7, None, memberId="m1")),
    replay_case(
        "testReplayConsumerGroupTargetAssignmentMetadata",
        new(6, {"assignmentEpoch": 10, "assignmentTimestamp": 7}),
        **CONSUMER,
        assignment_epoch=10,
    ),
    replay_case("testReplayConsumerGroupTargetAssignmentMetadataTombstone", new(6, None)),
    replay_case(
        "testReplayConsumerGroupTargetAssignmentMetadataTombstoneExisting",
        new(6, {"assignmentEpoch": 10}),
        new(6, None),
        **CONSUMER,
        assignment_epoch=-1,
    ),
    replay_case(
        "testReplayConsumerGroupCurrentMemberAssignment",
        current(10, T1=[0, 1]),
        **CONSUMER | {"state": "Reconciling", "members": [shown(10, 9, "STABLE", T1_0_1) | ANON]},
    ),
    replay_case("testReplayConsumerGroupCurrentMemberAssignmentTombstone", new(8, None, memberId="m1")),
    replay_case("testReplayConsumerGroupRegularExpression", new(16, REGEX, regularExpression="f.*"), **CONSUMER),
    replay_case(
        "testReplayConsumerGroupRegularExpressionTombstone",
        new(16, REGEX, regularExpression="f.*"),
        new(16, None, regularExpression="f.*"),
        **CONSUMER,
    ),
    replay_case(
        "testReplayConsumerGroupCurrentMemberAssignmentWithCompaction",
        current(11, T1=[0]),
        current(12, "m2", T1=[0]),
        current(12),
        current(13, T1=[1]),
        **CONSUMER
        | {
            "state": "Reconciling",
            "members": [
                shown(13, 12, "STABLE", {"topic": T1, "partitions": [1]}) | ANON,
                shown(12, 11, "STABLE", {"topic": T1, "partitions": [0]}) | ANON | {"member_id": "m2"},
            ],
        },
    ),
    replay_case(
        "testReplayConsumerGroupCurrentMemberAssignmentUnownedTopicWithCompaction",
        current(10, T1=[0]),
        current(11, "m2", T1=[0]),
        new(8, None, memberId="m2"),
        new(8, None, memberId="m1"),
        **CONSUMER | {"state": "Reconciling", "members": [ALL_LEFT | ANON, ALL_LEFT | ANON | {"member_id": "m2"}]},
    ),
)
