"""The logs of Kafka's own tests of the new coordinator's replay (reference 9.3-9.5, CK 4.4)."""

from __future__ import annotations

from typing import Any

from tests.conformance.builder import (
    FIXTURE,
    GROUP,
    T1,
    Log,
    Pair,
    cells,
    classic,
    classic_member,
    classic_tombstone,
    commit,
    commits,
    consumer_member,
    current,
    forget,
    new,
    share_current,
    share_member,
    streams_current,
    streams_member,
    streams_target,
    topics,
    topology,
)
from tests.conformance.case import NEW, Case

_OFFSETS, _GROUPS = "OffsetMetadataManagerTest", "GroupMetadataManagerTest"
_SHARD, _LOADER = "GroupCoordinatorShardTest", "CoordinatorLoaderImplTest"
_SIMPLE: dict[str, Any] = {"type": "Classic", "state": "Empty", "generation": 0, "protocol_type": None}
_CONSUMER: dict[str, Any] = {"type": "Consumer", "state": "Empty", "members": []}
_SHARE: dict[str, Any] = {"type": "Share", "state": "Empty", "members": []}
_STREAMS: dict[str, Any] = {"type": "Streams", "state": "Empty", "members": []}


def _member(
    epoch: int | None = 0, previous: int | None = -1, state: str | None = "STABLE", *has: Any
) -> dict[str, Any]:
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


def _replay(name: str, *pairs: Pair, kafka_class: str = _GROUPS, fails: bool = False, **group: Any) -> Case:
    """One batch; ``group`` are the fields of the one group there is then, if any."""
    return Case(kafka_class, name, NEW, Log().write(*pairs).batches, {GROUP: group} if group else {}, fails=fails)


_ANON: dict[str, Any] = {"client_id": "", "client_host": ""}
_ALL_LEFT = _member(-1, -1)
_TARGET: dict[str, Any] = {"topicPartitions": topics(T1=[0, 1])}
_T1 = {"topic": T1, "partitions": [0, 1]}
_STREAMS_EPOCH: dict[str, Any] = {"epoch": 5, "metadataHash": 1, "validatedTopologyEpoch": 1}
_SHARE_STATE: dict[str, Any] = {"initializingTopics": [], "initializedTopics": [], "deletingTopics": []}
_REGEX: dict[str, Any] = {"topics": ["foo"], "version": 1, "timestamp": 1}
_TOPIC_METADATA = {"topics": [{"topicId": T1, "topicName": "t", "numPartitions": 1, "partitionMetadata": []}]}

OFFSET_CASES = (
    Case(
        _OFFSETS,
        "testReplay",
        NEW,
        Log()
        .write(commit("foo", 0, 100, leaderEpoch=10), commit("foo", 0, 50, version=4, topicId=T1))
        .write(commit("foo", 1, 200, group="bar", version=1, expireTimestamp=12345))
        .batches,
        {GROUP: _SIMPLE, "bar": _SIMPLE},
        cells(foo_0=50) | cells("bar", foo_1=200),
    ),
    Case(
        _OFFSETS,
        "testTransactionalReplay",
        NEW,
        Log()
        .write(*commits(foo_0=100, foo_1=101), producer=5)
        .write(commit("bar", 0, 102, group="bar"), producer=5)
        .write(*commits(foo_0=103), producer=6)
        .batches,
        {GROUP: _SIMPLE, "bar": _SIMPLE},
    ),
    Case(
        _OFFSETS,
        "testReplayWithTombstoneAndPendingTransactionalOffsets",
        NEW,
        Log()
        .write(*commits(foo_0=100, foo_1=101, foo_2=102), producer=10)
        .write(forget("foo", 1), forget("foo", 2))
        .end(10)
        .batches,
        {GROUP: _SIMPLE},
        cells(foo_0=100),
    ),
    Case(
        _OFFSETS,
        "testReplayTransactionEndMarkerWithCommit",
        NEW,
        Log()
        .end(1)
        .write(*commits(foo_0=100), producer=5)
        .write(*commits(foo_1=101), producer=6)
        .end(5)
        .abort(6)
        .batches,
        {GROUP: _SIMPLE},
        cells(foo_0=100),
    ),
    Case(
        _OFFSETS,
        "testReplayTransactionEndMarkerKeepsTheMostRecentCommittedOffset",
        NEW,
        Log().write(*commits(foo_0=100), producer=5).write(*commits(foo_0=101)).end(5).batches,
        {GROUP: _SIMPLE},
        cells(foo_0=101),
    ),
)

GROUP_CASES = (
    _replay(
        "testReplayGroupMetadataRecords",
        classic(classic_member("m1", rebalanceTimeout=-1)),
        type="Classic",
        state="Stable",
        leader="m1",
        generation=935,
    ),
    _replay(
        "testReplayConsumerGroupMemberMetadata",
        consumer_member(),
        **_CONSUMER | {"state": "Reconciling", "members": [_member()]},
    ),
    _replay("testReplayConsumerGroupMemberMetadataTombstone", new(5, None, memberId="m1")),
    _replay("testReplayConsumerGroupMetadata", new(3, {"epoch": 10, "metadataHash": 1}), **_CONSUMER, epoch=10),
    _replay("testReplayConsumerGroupMetadataTombstone", new(3, None)),
    _replay("testReplayConsumerGroupPartitionMetadata", new(4, _TOPIC_METADATA), **_CONSUMER),
    _replay("testReplayConsumerGroupPartitionMetadataTombstone", new(4, None)),
    _replay(
        "testReplayConsumerGroupPartitionMetadataTombstoneWithExistentGroup",
        new(4, _TOPIC_METADATA),
        new(4, None),
        **_CONSUMER,
    ),
    _replay("testReplayConsumerGroupTargetAssignmentMember", new(7, _TARGET, memberId="m1"), **_CONSUMER),
    _replay("testReplayConsumerGroupTargetAssignmentMemberTombstone", new(7, None, memberId="m1")),
    _replay(
        "testReplayConsumerGroupTargetAssignmentMetadata",
        new(6, {"assignmentEpoch": 10, "assignmentTimestamp": 7}),
        **_CONSUMER,
        assignment_epoch=10,
    ),
    _replay("testReplayConsumerGroupTargetAssignmentMetadataTombstone", new(6, None)),
    _replay(
        "testReplayConsumerGroupTargetAssignmentMetadataTombstoneExisting",
        new(6, {"assignmentEpoch": 10}),
        new(6, None),
        **_CONSUMER,
        assignment_epoch=-1,
    ),
    _replay(
        "testReplayConsumerGroupCurrentMemberAssignment",
        current(10, T1=[0, 1]),
        **_CONSUMER | {"state": "Reconciling", "members": [_member(10, 9, "STABLE", _T1) | _ANON]},
    ),
    _replay("testReplayConsumerGroupCurrentMemberAssignmentTombstone", new(8, None, memberId="m1")),
    _replay("testReplayConsumerGroupRegularExpression", new(16, _REGEX, regularExpression="f.*"), **_CONSUMER),
    _replay(
        "testReplayConsumerGroupRegularExpressionTombstone",
        new(16, _REGEX, regularExpression="f.*"),
        new(16, None, regularExpression="f.*"),
        **_CONSUMER,
    ),
    _replay(
        "testReplayConsumerGroupCurrentMemberAssignmentWithCompaction",
        current(11, T1=[0]),
        current(12, "m2", T1=[0]),
        current(12),
        current(13, T1=[1]),
        **_CONSUMER
        | {
            "state": "Reconciling",
            "members": [
                _member(13, 12, "STABLE", {"topic": T1, "partitions": [1]}) | _ANON,
                _member(12, 11, "STABLE", {"topic": T1, "partitions": [0]}) | _ANON | {"member_id": "m2"},
            ],
        },
    ),
    _replay(
        "testReplayConsumerGroupCurrentMemberAssignmentUnownedTopicWithCompaction",
        current(10, T1=[0]),
        current(11, "m2", T1=[0]),
        new(8, None, memberId="m2"),
        new(8, None, memberId="m1"),
        **_CONSUMER | {"state": "Reconciling", "members": [_ALL_LEFT | _ANON, _ALL_LEFT | _ANON | {"member_id": "m2"}]},
    ),
    _replay(
        "testReplayShareGroupTargetAssignmentMetadata", new(12, {"assignmentEpoch": 10}), **_SHARE, assignment_epoch=10
    ),
    _replay("testReplayShareGroupTargetAssignmentMetadataTombstone", new(12, None)),
    _replay(
        "testReplayShareGroupTargetAssignmentMetadataTombstoneExisting",
        new(12, {"assignmentEpoch": 10}),
        new(12, None),
        **_SHARE,
        assignment_epoch=-1,
    ),
    _replay(
        "testReplayStreamsGroupMemberMetadata",
        streams_member(),
        **_STREAMS | {"state": "NotReady", "members": [_member(None, None, None)]},
    ),
    Case(
        _GROUPS,
        "testReplayStreamsGroupMemberMetadataWithSimpleClassicGroup",
        NEW,
        Log().write(*commits(**FIXTURE), streams_member()).batches,
        {GROUP: _STREAMS | {"state": "NotReady", "members": [_member(None, None, None)]}},
        cells(**FIXTURE),
    ),
    _replay("testReplayStreamsGroupMemberMetadataTombstoneNotExisting", new(19, None, memberId="m1")),
    _replay(
        "testReplayStreamsGroupMemberMetadataTombstoneExisting",
        streams_member(),
        streams_current(1),
        new(22, None, memberId="m1"),
        new(19, None, memberId="m1"),
        **_STREAMS,
    ),
    _replay("testReplayStreamsGroupMetadata", new(17, _STREAMS_EPOCH), **_STREAMS, epoch=5),
    _replay("testReplayStreamsGroupEpochTombstoneNotExisting", new(17, None)),
    _replay(
        "testReplayStreamsGroupEpochTombstoneExisting",
        new(17, _STREAMS_EPOCH),
        new(20, {"assignmentEpoch": 5}),
        new(20, None),
        new(17, None),
    ),
    _replay("testReplayStreamsGroupTargetAssignmentMember", streams_target(s=[0]), **_STREAMS),
    _replay("testReplayStreamsGroupTargetAssignmentMemberTombstoneNonExisting", new(21, None, memberId="m1")),
    _replay(
        "testReplayStreamsGroupTargetAssignmentMemberTombstoneExisting",
        streams_target(s=[0]),
        new(21, None, memberId="m1"),
        new(20, None),  # it would fail if a target were left
        **_STREAMS,
    ),
    _replay(
        "testReplayStreamsGroupTargetAssignmentMetadata",
        new(20, {"assignmentEpoch": 5}),
        **_STREAMS,
        assignment_epoch=5,
    ),
    _replay("testReplayStreamsGroupTargetAssignmentMetadataTombstoneNotExisting", new(20, None)),
    _replay(
        "testReplayStreamsGroupTargetAssignmentMetadataTombstoneExisting",
        new(20, {"assignmentEpoch": 5}),
        new(20, None),
        **_STREAMS,
        assignment_epoch=-1,
    ),
    _replay(
        "testReplayStreamsGroupCurrentMemberAssignment",
        streams_current(10, s=[0, 1]),
        **_STREAMS
        | {
            "state": "NotReady",
            "members": [
                _member(10, 9, "STABLE", {"role": "active", "subtopology_id": "s", "partitions": [0, 1]})
                | {"client_id": "", "client_host": ""}
            ],
        },
    ),
    _replay("testReplayStreamsGroupCurrentMemberAssignmentTombstoneNotExisting", new(22, None, memberId="m1")),
    _replay(
        "testReplayStreamsGroupCurrentMemberAssignmentTombstoneExisting",
        streams_current(10, s=[0]),
        new(22, None, memberId="m1"),
        **_STREAMS | {"state": "NotReady", "members": [_ALL_LEFT | _ANON]},
    ),
    _replay(
        "testReplayStreamsGroupCurrentMemberAssignmentWithCompaction",
        streams_member(process="p1"),
        streams_member("m2", process="p2"),
        streams_current(11, s=[0]),
        streams_current(12, "m2", s=[0]),
        streams_current(13),
        **_STREAMS
        | {
            "state": "NotReady",
            "members": [
                _member(13, 12),
                _member(12, 11, "STABLE", {"role": "active", "subtopology_id": "s", "partitions": [0]})
                | {"member_id": "m2"},
            ],
        },
    ),
    _replay(
        "testReplayStreamsGroupCurrentMemberAssignmentUnownedTopologyWithCompaction",
        streams_current(11, s=[0]),
        streams_current(12, "m2", s=[0]),
        new(22, None, memberId="m2"),
        new(22, None, memberId="m1"),
        **_STREAMS | {"state": "NotReady", "members": [_ALL_LEFT | _ANON, _ALL_LEFT | _ANON | {"member_id": "m2"}]},
    ),
    _replay("testReplayStreamsGroupTopology", topology(), **_STREAMS),
    _replay("testReplayStreamsGroupTopologyTombstoneNotExists", new(23, None)),
    _replay(
        "testReplayStreamsGroupTopologyTombstoneExists",
        streams_member(),
        streams_current(5),
        new(17, _STREAMS_EPOCH),
        new(20, {"assignmentEpoch": 5}),
        topology(),
        new(23, None),
        **_STREAMS | {"state": "NotReady", "members": [_member(5, 4)]},
    ),
)


def _shard(name: str, value: Pair, tombstone: Pair | None, **group: Any) -> tuple[Case, ...]:
    """A record of each type alone, and its tombstone alone: each finds its way to the group it belongs to."""
    present = _replay(name, value, kafka_class=_SHARD, **group)
    return (
        (present,) if tombstone is None else (present, _replay(f"{name}WithNullValue", tombstone, kafka_class=_SHARD))
    )


SHARD_CASES = (
    Case(
        _SHARD,
        "testReplayOffsetCommit",
        NEW,
        Log().write(commit("goo", 0, 1, key_type=0, version=0), commit("goo", 1, 2)).batches,
        {GROUP: _SIMPLE},
        cells(goo_0=1, goo_1=2),
    ),
    Case(
        _SHARD,
        "testReplayTransactionalOffsetCommit",
        NEW,
        Log().write(commit("goo", 0, 1, key_type=0, version=0), commit("goo", 1, 2), producer=100).batches,
        {GROUP: _SIMPLE},
    ),
    Case(
        _SHARD,
        "testReplayOffsetCommitWithNullValue",
        NEW,
        Log().write(commit("goo", 0, 1), forget("goo", 0), commit("goo", 1, 1), forget("goo", 1, key_type=0)).batches,
        {GROUP: _SIMPLE},
    ),
    *_shard("testReplayGroupMetadata", classic(), classic_tombstone(), type="Classic", state="Empty"),
    *_shard("testReplayConsumerGroupMetadata", new(3, {"epoch": 1}), new(3, None), **_CONSUMER),
    *_shard("testReplayConsumerGroupPartitionMetadata", new(4, _TOPIC_METADATA), new(4, None), **_CONSUMER),
    *_shard("testReplayConsumerGroupMemberMetadata", consumer_member(), new(5, None, memberId="m1"), type="Consumer"),
    *_shard(
        "testReplayConsumerGroupTargetAssignmentMetadata", new(6, {"assignmentEpoch": 1}), new(6, None), **_CONSUMER
    ),
    *_shard(
        "testReplayConsumerGroupTargetAssignmentMember",
        new(7, _TARGET, memberId="m1"),
        new(7, None, memberId="m1"),
        **_CONSUMER,
    ),
    *_shard("testReplayConsumerGroupCurrentMemberAssignment", current(1), new(8, None, memberId="m1"), type="Consumer"),
    *_shard("testReplayConsumerGroupRegularExpression", new(16, _REGEX, regularExpression="a"), None, **_CONSUMER),
    _replay(
        "testReplayConsumerGroupRegularExpressionTombstone", new(16, None, regularExpression="a"), kafka_class=_SHARD
    ),
    *_shard("testReplayShareGroupMetadata", new(11, {"epoch": 1, "metadataHash": 0}), new(11, None), **_SHARE),
    *_shard(
        "testReplayShareGroupMemberMetadata", share_member(), new(10, None, memberId="m1"), type="Share", state="Stable"
    ),
    *_shard("testReplayShareGroupTargetAssignmentMetadata", new(12, {"assignmentEpoch": 1}), new(12, None), **_SHARE),
    *_shard(
        "testReplayShareGroupTargetAssignmentMember",
        new(13, _TARGET, memberId="m1"),
        new(13, None, memberId="m1"),
        **_SHARE,
    ),
    *_shard(
        "testReplayShareGroupCurrentMemberAssignment", share_current(1), new(14, None, memberId="m1"), type="Share"
    ),
    *_shard("testReplayShareGroupStatePartitionMetadata", new(15, _SHARE_STATE), new(15, None), **_SHARE),
    *_shard("testReplayStreamsGroupMetadata", new(17, _STREAMS_EPOCH), new(17, None), **_STREAMS),
    *_shard("testReplayStreamsGroupMemberMetadata", streams_member(), new(19, None, memberId="m1"), type="Streams"),
    *_shard(
        "testReplayStreamsGroupTargetAssignmentMetadata", new(20, {"assignmentEpoch": 1}), new(20, None), **_STREAMS
    ),
    *_shard("testReplayStreamsGroupTargetAssignmentMember", streams_target(), new(21, None, memberId="m1"), **_STREAMS),
    *_shard(
        "testReplayStreamsGroupCurrentMemberAssignment",
        streams_current(1),
        new(22, None, memberId="m1"),
        type="Streams",
    ),
    *_shard("testReplayStreamsGroupTopology", topology(), new(23, None), **_STREAMS),
    Case(_SHARD, "testReplayKeyCannotBeNull", NEW, Log().write(*commits(foo_0=1), (None, b"")).batches, fails=True),
    Case(
        _SHARD,
        "testReplayEndTransactionMarker",
        NEW,
        Log().write(*commits(foo_0=1), producer=100).end(100).write(*commits(foo_0=2), producer=100).abort(100).batches,
        {GROUP: _SIMPLE},
        cells(foo_0=1),
    ),
    Case(
        _LOADER,
        "testLoading",
        NEW,
        Log()
        .write(*commits(foo_0=1))
        .empty()
        .write(*commits(foo_1=2), producer=100)
        .end(100)
        .write(*commits(foo_1=3), producer=500)
        .abort(500)
        .batches,
        {GROUP: _SIMPLE},
        cells(foo_0=1, foo_1=2),
    ),
    Case(
        _LOADER,
        "testUnknownRecordTypeAreIgnored",
        NEW,
        Log().write((b"\x03\xe7k1", b"\x00\x00v1"), *commits(foo_0=1)).batches,
        {GROUP: _SIMPLE},
        cells(foo_0=1),
    ),
    Case(
        _LOADER,
        "testDeserializationErrorFailsTheLoading",
        NEW,
        Log().write(*commits(foo_0=1), (b"\x00\x02\x00\x09x", b"\x00\x00")).batches,
        fails=True,
    ),
    Case(_LOADER, "testLoadGroupAndOffsetsWithCorruptedLog", NEW, Log().empty().batches),
)

NEW_CASES = (*OFFSET_CASES, *GROUP_CASES, *SHARD_CASES)
