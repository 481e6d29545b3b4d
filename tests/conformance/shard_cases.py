"""The logs of Kafka's own tests of a shard and of its loader (reference 9.5)."""

from __future__ import annotations

from typing import Any

from tests.conformance.builder import (
    GROUP,
    Log,
    Pair,
    cells,
    classic,
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
    topology,
)
from tests.conformance.case import NEW, Case
from tests.conformance.new_groups import (
    CONSUMER,
    LOADER,
    REGEX,
    SHARD,
    SHARE,
    SHARE_STATE,
    SIMPLE,
    STREAMS,
    STREAMS_EPOCH,
    TARGET,
    TOPIC_METADATA,
    replay_case,
)


def _shard(name: str, value: Pair, tombstone: Pair | None, **group: Any) -> tuple[Case, ...]:
    """A record of each type alone, and its tombstone alone: each must reach its group."""
    present = replay_case(name, value, kafka_class=SHARD, **group)
    return (
        (present,)
        if tombstone is None
        else (present, replay_case(f"{name}WithNullValue", tombstone, kafka_class=SHARD))
    )


SHARD_CASES = (
    Case(
        SHARD,
        "testReplayOffsetCommit",
        NEW,
        Log().write(commit("goo", 0, 1, key_type=0, version=0), commit("goo", 1, 2)).batches,
        {GROUP: SIMPLE},
        cells(goo_0=1, goo_1=2),
    ),
    Case(
        SHARD,
        "testReplayTransactionalOffsetCommit",
        NEW,
        Log().write(commit("goo", 0, 1, key_type=0, version=0), commit("goo", 1, 2), producer=100).batches,
        {GROUP: SIMPLE},
    ),
    Case(
        SHARD,
        "testReplayOffsetCommitWithNullValue",
        NEW,
        Log().write(commit("goo", 0, 1), forget("goo", 0), commit("goo", 1, 1), forget("goo", 1, key_type=0)).batches,
        {GROUP: SIMPLE},
    ),
    *_shard("testReplayGroupMetadata", classic(), classic_tombstone(), type="Classic", state="Empty"),
    *_shard("testReplayConsumerGroupMetadata", new(3, {"epoch": 1}), new(3, None), **CONSUMER),
    *_shard("testReplayConsumerGroupPartitionMetadata", new(4, TOPIC_METADATA), new(4, None), **CONSUMER),
    *_shard("testReplayConsumerGroupMemberMetadata", consumer_member(), new(5, None, memberId="m1"), type="Consumer"),
    *_shard(
        "testReplayConsumerGroupTargetAssignmentMetadata", new(6, {"assignmentEpoch": 1}), new(6, None), **CONSUMER
    ),
    *_shard(
        "testReplayConsumerGroupTargetAssignmentMember",
        new(7, TARGET, memberId="m1"),
        new(7, None, memberId="m1"),
        **CONSUMER,
    ),
    *_shard("testReplayConsumerGroupCurrentMemberAssignment", current(1), new(8, None, memberId="m1"), type="Consumer"),
    *_shard("testReplayConsumerGroupRegularExpression", new(16, REGEX, regularExpression="a"), None, **CONSUMER),
    replay_case(
        "testReplayConsumerGroupRegularExpressionTombstone",
        new(16, None, regularExpression="a"),
        kafka_class=SHARD,
    ),
    *_shard("testReplayShareGroupMetadata", new(11, {"epoch": 1, "metadataHash": 0}), new(11, None), **SHARE),
    *_shard(
        "testReplayShareGroupMemberMetadata", share_member(), new(10, None, memberId="m1"), type="Share", state="Stable"
    ),
    *_shard("testReplayShareGroupTargetAssignmentMetadata", new(12, {"assignmentEpoch": 1}), new(12, None), **SHARE),
    *_shard(
        "testReplayShareGroupTargetAssignmentMember",
        new(13, TARGET, memberId="m1"),
        new(13, None, memberId="m1"),
        **SHARE,
    ),
    *_shard(
        "testReplayShareGroupCurrentMemberAssignment", share_current(1), new(14, None, memberId="m1"), type="Share"
    ),
    *_shard("testReplayShareGroupStatePartitionMetadata", new(15, SHARE_STATE), new(15, None), **SHARE),
    *_shard("testReplayStreamsGroupMetadata", new(17, STREAMS_EPOCH), new(17, None), **STREAMS),
    *_shard("testReplayStreamsGroupMemberMetadata", streams_member(), new(19, None, memberId="m1"), type="Streams"),
    *_shard(
        "testReplayStreamsGroupTargetAssignmentMetadata", new(20, {"assignmentEpoch": 1}), new(20, None), **STREAMS
    ),
    *_shard("testReplayStreamsGroupTargetAssignmentMember", streams_target(), new(21, None, memberId="m1"), **STREAMS),
    *_shard(
        "testReplayStreamsGroupCurrentMemberAssignment",
        streams_current(1),
        new(22, None, memberId="m1"),
        type="Streams",
    ),
    *_shard("testReplayStreamsGroupTopology", topology(), new(23, None), **STREAMS),
    Case(SHARD, "testReplayKeyCannotBeNull", NEW, Log().write(*commits(foo_0=1), (None, b"")).batches, fails=True),
    Case(
        SHARD,
        "testReplayEndTransactionMarker",
        NEW,
        Log().write(*commits(foo_0=1), producer=100).end(100).write(*commits(foo_0=2), producer=100).abort(100).batches,
        {GROUP: SIMPLE},
        cells(foo_0=1),
    ),
    Case(
        LOADER,
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
        {GROUP: SIMPLE},
        cells(foo_0=1, foo_1=2),
    ),
    Case(
        LOADER,
        "testUnknownRecordTypeAreIgnored",
        NEW,
        Log().write((b"\x03\xe7k1", b"\x00\x00v1"), *commits(foo_0=1)).batches,
        {GROUP: SIMPLE},
        cells(foo_0=1),
    ),
    Case(
        LOADER,
        "testDeserializationErrorFailsTheLoading",
        NEW,
        Log().write(*commits(foo_0=1), (b"\x00\x02\x00\x09x", b"\x00\x00")).batches,
        fails=True,
    ),
    Case(LOADER, "testLoadGroupAndOffsetsWithCorruptedLog", NEW, Log().empty().batches),
)
