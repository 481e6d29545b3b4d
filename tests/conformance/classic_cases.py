"""The logs of Kafka's own tests of the classic coordinator's load (reference 9.1, AK 3.9)."""

from __future__ import annotations

from typing import Any

from tests.conformance.builder import (
    FIXTURE,
    GROUP,
    Log,
    assignment,
    cells,
    classic,
    classic_member,
    classic_tombstone,
    commit,
    commits,
    forget,
    subscription,
)
from tests.conformance.case import BOTH, CLASSIC, Case

_CLASS = "GroupMetadataManagerTest.scala"
_SIMPLE: dict[str, Any] = {
    "type": "Classic",
    "state": "Empty",
    "generation": 0,
    "protocol_type": None,
    "protocol": None,
    "members": [],
}
_STABLE: dict[str, Any] = {
    "type": "Classic",
    "state": "Stable",
    "generation": 935,
    "protocol_type": "consumer",
    "protocol": "range",
    "leader": "98098230493",
}
_MEMBER: dict[str, Any] = {
    "member_id": "98098230493",
    "group_instance_id": None,
    "client_id": "clientId",
    "client_host": "clientHost",
    "assignment": [],
}
_UNKNOWN = (b"\x7f\xff\x00\x01x", b"\x00\x00")
_OTHER = {"foo_2": 231, "foo_3": 4551, "bar_1": 89921}
_THIRD = {"foo_0": 2312, "foo_1": 4532, "bar_0": 8994}

CLASSIC_CASES = (
    Case(
        _CLASS,
        "testLoadOffsetsWithoutGroup",
        BOTH,
        Log(15).write(*commits(**FIXTURE)).batches,
        {GROUP: _SIMPLE},
        cells(**FIXTURE),
    ),
    Case(
        _CLASS,
        "testLoadEmptyGroupWithOffsets",
        BOTH,
        Log(15).write(*commits(**FIXTURE), classic(generation=15)).batches,
        {GROUP: _SIMPLE | {"generation": 15, "protocol_type": "consumer", "leader": None}},
        cells(**FIXTURE),
    ),
    Case(
        _CLASS,
        "testLoadTransactionalOffsetsWithoutGroup",
        BOTH,
        Log().write(*commits(**FIXTURE), producer=1000).end(1000).batches,
        {GROUP: _SIMPLE},
        cells(**FIXTURE),
    ),
    Case(
        _CLASS,
        "testDoNotLoadAbortedTransactionalOffsetCommits",
        CLASSIC,
        Log().write(*commits(**FIXTURE), producer=1000).abort(1000).batches,
    ),
    Case(
        _CLASS,
        "testGroupLoadedWithPendingCommits",
        BOTH,
        Log().write(*commits(**FIXTURE), producer=1000).batches,
        {GROUP: _SIMPLE},
    ),
    Case(
        _CLASS,
        "testLoadWithCommittedAndAbortedTransactionalOffsetCommits",
        BOTH,
        Log()
        .write(*commits(**_OTHER), producer=1000)
        .abort(1000)
        .write(*commits(**FIXTURE), producer=1000)
        .end(1000)
        .batches,
        {GROUP: _SIMPLE},
        cells(**FIXTURE),
    ),
    Case(
        _CLASS,
        "testLoadWithCommittedAndAbortedAndPendingTransactionalOffsetCommits",
        BOTH,
        Log()
        .write(*commits(**FIXTURE), producer=1000)
        .end(1000)
        .write(*commits(**_OTHER), producer=1000)
        .abort(1000)
        .write(*commits(**_THIRD), producer=1000)
        .batches,
        {GROUP: _SIMPLE},
        cells(**FIXTURE),
    ),
    Case(
        _CLASS,
        "testLoadTransactionalOffsetCommitsFromMultipleProducers",
        BOTH,
        Log()
        .write(*commits(**FIXTURE), producer=1000)
        .write(*commits(**_OTHER), producer=1001)
        .end(1001)
        .end(1000)
        .batches,
        {GROUP: _SIMPLE},
        cells(**FIXTURE, **_OTHER),
    ),
    Case(
        _CLASS,
        "testGroupLoadWithConsumerAndTransactionalOffsetCommitsConsumerWins",
        BOTH,
        Log().write(*commits(foo_0=23), producer=1000).write(*commits(foo_0=24)).end(1000).batches,
        {GROUP: _SIMPLE},
        cells(foo_0=24),
    ),
    Case(
        _CLASS,
        "testGroupLoadWithConsumerAndTransactionalOffsetCommitsTransactionWins",
        BOTH,
        Log().write(*commits(foo_0=24)).write(*commits(foo_0=23), producer=1000).end(1000).batches,
        {GROUP: _SIMPLE},
        cells(foo_0=23),
    ),
    Case(
        _CLASS,
        "testLoadOffsetsWithTombstones",
        BOTH,
        Log(15).write(*commits(**FIXTURE), forget("foo", 1)).batches,
        {GROUP: _SIMPLE},
        cells(foo_0=23, bar_0=8992),
    ),
    Case(
        _CLASS,
        "testLoadOffsetsAndGroup",
        BOTH,
        Log(15).write(*commits(**FIXTURE), classic(classic_member())).batches,
        {GROUP: _STABLE | {"members": [_MEMBER]}},
        cells(**FIXTURE),
    ),
    Case(
        _CLASS,
        "testLoadGroupWithTombstone",
        BOTH,
        Log(15).write(classic(classic_member()), classic_tombstone()).batches,
    ),
    Case(
        _CLASS,
        "testLoadGroupWithLargeGroupMetadataRecord",
        BOTH,
        Log(15).write(*commits(**FIXTURE), classic(classic_member(assignment=bytes(6 * 1024 * 1024)))).batches,
        {GROUP: _STABLE},
        cells(**FIXTURE),
    ),
    Case(
        _CLASS,
        "testLoadGroupAndOffsetsWithCorruptedLog",
        BOTH,
        # The log ends before its end offset: the load ends after the existing records.
        Log(15).write(*commits(**FIXTURE)).batches,
        {GROUP: _SIMPLE},
        cells(**FIXTURE),
    ),
    Case(
        _CLASS,
        "testOffsetWriteAfterGroupRemoved",
        BOTH,
        Log(15).write(classic(classic_member()), classic_tombstone(), *commits(**FIXTURE)).batches,
        {GROUP: _SIMPLE},
        cells(**FIXTURE),
    ),
    Case(
        _CLASS,
        "testLoadGroupAndOffsetsFromDifferentSegments",
        BOTH,
        Log(15)
        .write(*commits(foo_0=23, foo_1=455, bar_0=42), classic(classic_member("a")))
        .write(*commits(foo_0=24, foo_2=8992, bar_0=10), classic(classic_member("b")))
        .batches,
        {GROUP: _STABLE | {"leader": "b", "members": [_MEMBER | {"member_id": "b"}]}},
        cells(foo_0=24, foo_1=455, foo_2=8992, bar_0=10),
    ),
    Case(
        _CLASS,
        "testloadGroupWithStaticMember",
        BOTH,
        Log(15).write(classic(classic_member("static", groupInstanceId="instance"), classic_member("dynamic"))).batches,
        {
            GROUP: {
                "state": "Stable",
                "members": [
                    _MEMBER | {"member_id": "dynamic"},
                    _MEMBER | {"member_id": "static", "group_instance_id": "instance"},
                ],
            }
        },
    ),
    Case(
        _CLASS,
        "testLoadConsumerGroup",
        BOTH,
        Log(15)
        .write(classic(classic_member(subscription=subscription("topic"), assignment=assignment(topic=[1, 0]))))
        .batches,
        {GROUP: _STABLE | {"members": [_MEMBER | {"assignment": [{"topic": "topic", "partitions": [0, 1]}]}]}},
    ),
    Case(
        _CLASS,
        "testLoadEmptyConsumerGroup",
        BOTH,
        Log(15).write(classic()).batches,
        {GROUP: {"state": "Empty", "protocol_type": "consumer", "protocol": None, "members": []}},
    ),
    Case(
        _CLASS,
        "testLoadConsumerGroupWithFaultyConsumerProtocol",
        BOTH,
        Log(15).write(classic(classic_member())).batches,
        {GROUP: _STABLE | {"members": [_MEMBER]}},
    ),
    Case(
        _CLASS,
        "testLoadOffsetFromOldCommit",
        BOTH,
        Log(15).write(commit("foo", 0, 23, version=1, expireTimestamp=1_700_000_001_000)).batches,
        {GROUP: _SIMPLE},
        cells(foo_0=23),
    ),
    Case(
        _CLASS,
        "testLoadOffsetWithExplicitRetention",
        BOTH,
        Log(15).write(commit("foo", 0, 23, version=1, expireTimestamp=1_700_000_001_000), *commits(bar_0=1)).batches,
        {GROUP: _SIMPLE},
        cells(foo_0=23, bar_0=1),
    ),
    Case(
        _CLASS,
        "testLoadOffsetsWithEmptyControlBatch",
        BOTH,
        Log(15).write(*commits(**FIXTURE)).empty(1000, is_control=True).batches,
        {GROUP: _SIMPLE},
        cells(**FIXTURE),
    ),
    Case(
        _CLASS,
        "testLoadGroupsAndOffsetsWillIgnoreUnknownMessage",
        BOTH,
        Log(15).write(_UNKNOWN, *commits(**FIXTURE), _UNKNOWN, classic(classic_member()), _UNKNOWN).batches,
        {GROUP: _STABLE | {"members": [_MEMBER]}},
        cells(**FIXTURE),
    ),
)
