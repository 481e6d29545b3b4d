"""Logs that Kafka's own tests lack (reference 9.6). A name starts with the number of its case."""

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
    share_member,
    streams_member,
    topics,
)
from tests.conformance.case import BOTH, CLASSIC, NEW, Case

_SECTION = "9.6"
_SIMPLE: dict[str, Any] = {"type": "Classic", "state": "Empty", "generation": 0}
_CONSUMER: dict[str, Any] = {"type": "Consumer", "state": "Stable", "epoch": 5, "assignment_epoch": 5}


def _consumer_group(epoch: int = 5) -> tuple[Pair, ...]:
    """The first records of a consumer group, in the order in which brokers write them (reference 5.10 item 4)."""
    return (
        consumer_member(),
        new(3, {"epoch": epoch}),
        new(7, {"topicPartitions": topics(T1=[0, 1])}, memberId="m1"),
        new(6, {"assignmentEpoch": epoch}),
        current(epoch, T1=[0, 1]),
    )


def _deletion() -> tuple[Pair, ...]:
    """All tombstones of that group, in their order (reference 5.7)."""
    return (
        new(8, None, memberId="m1"),
        new(7, None, memberId="m1"),
        new(6, None),
        new(5, None, memberId="m1"),
        new(4, None),
        new(3, None),
    )


def _one(name: str, *pairs: Pair, offsets: dict[str, int] | None = None, fails: bool = False, **group: Any) -> Case:
    batches = Log().write(*pairs).batches
    return Case(_SECTION, name, NEW, batches, {GROUP: group} if group else {}, cells(**(offsets or {})), fails)


_UNKNOWN_TYPES = (9, 18, 24, 32767, -1)
_HOSTILE_IDS = ("😀-group", "a\0b", "a,b", "a\nb", "")

FURTHER_CASES = (
    Case(
        _SECTION,
        "2 transactional tombstone classic",
        CLASSIC,
        Log().write(*commits(foo_0=24)).write(forget("foo", 0), producer=7).end(7).batches,
        {GROUP: _SIMPLE},
        cells(foo_0=24),
    ),
    Case(
        _SECTION,
        "2 transactional tombstone new",
        NEW,
        Log().write(*commits(foo_0=24)).write(forget("foo", 0), producer=7).end(7).batches,
        {GROUP: _SIMPLE},
    ),
    Case(
        _SECTION,
        "3 type 0 then 1",
        BOTH,
        Log().write(commit("foo", 0, 1, key_type=0, version=0), commit("foo", 0, 2)).batches,
        {GROUP: _SIMPLE},
        cells(foo_0=2),
    ),
    Case(
        _SECTION,
        "3 type 1 then 0",
        BOTH,
        Log().write(commit("foo", 0, 2), commit("foo", 0, 1, key_type=0, version=0)).batches,
        {GROUP: _SIMPLE},
        cells(foo_0=1),
    ),
    Case(
        _SECTION,
        "3 tombstone of type 1 removes type 0",
        BOTH,
        Log().write(*commits(foo_1=7), commit("foo", 0, 1, key_type=0, version=0), forget("foo", 0)).batches,
        {GROUP: _SIMPLE},
        cells(foo_1=7),
    ),
    Case(
        _SECTION,
        "4 group tombstone, then pending commits only, classic",
        CLASSIC,
        Log().write(classic(classic_member()), classic_tombstone()).write(*commits(foo_0=1), producer=7).batches,
        {GROUP: _SIMPLE},
    ),
    Case(
        _SECTION,
        "4 pending commits only, then group tombstone, new",
        NEW,
        Log().write(*commits(foo_0=1), producer=7).write(classic_tombstone()).batches,
    ),
    _one(
        "6 classic to consumer",
        *commits(**FIXTURE),
        classic(classic_member(), generation=4),
        *commits(foo_1=456),
        classic_tombstone(),
        *_consumer_group(),
        *commits(foo_0=24),
        offsets=FIXTURE | {"foo_1": 456, "foo_0": 24},
        **_CONSUMER,
    ),
    _one(
        "6 consumer to classic and back",
        *_consumer_group(),
        *commits(foo_0=1),
        *_deletion(),
        classic(classic_member("m1"), generation=5),
        *commits(foo_0=2),
        classic_tombstone(),
        *_consumer_group(6),
        offsets={"foo_0": 2},
        **_CONSUMER | {"epoch": 6, "assignment_epoch": 6},
    ),
    _one(
        "6 consumer to classic",
        *_consumer_group(),
        *_deletion(),
        classic(classic_member("m1"), generation=5),
        type="Classic",
        state="Stable",
        generation=5,
    ),
    _one("6 a classic record replaces a consumer group", *_consumer_group(), classic(), type="Classic", state="Empty"),
    _one(
        "6 a classic tombstone removes a consumer group",
        *_consumer_group(),
        *commits(foo_0=1),
        classic_tombstone(),
        offsets={"foo_0": 1},
    ),
    _one("6 a consumer record on a classic group", classic(classic_member()), consumer_member(), fails=True),
    _one("6 a share record on a simple group", *commits(foo_0=1), share_member(), fails=True),
    _one("6 a streams record on a consumer group", *_consumer_group(), streams_member(), fails=True),
    _one(
        "6 a tombstone of a consumer group on a simple one",
        *commits(foo_0=1),
        new(5, None, memberId="m1"),
        offsets={"foo_0": 1},
        type="Consumer",
        state="Empty",
    ),
    _one("6 tombstones out of order", *_consumer_group(), new(5, None, memberId="m1"), fails=True),
    _one("6 a partition taken at a lower epoch", current(11, T1=[0]), current(10, "m2", T1=[0]), fails=True),
    Case(
        _SECTION,
        "6 the classic coordinator ignores the newer records",
        CLASSIC,
        Log().write(*commits(foo_0=1), *_consumer_group(), *_deletion()).batches,
        {GROUP: _SIMPLE},
        cells(foo_0=1),
    ),
    _one("8 record 11 of 4.0 with 7 bytes", (b"\0\x0b\0\x03foo", b"\0\0\0\0\0\x09\0"), type="Share", epoch=9),
    _one("8 record 11 of 4.1 with 15 bytes", (b"\0\x0b\0\x03foo", b"\0\0\0\0\0\x09" + bytes(9)), type="Share", epoch=9),
    Case(
        _SECTION,
        "10 unknown types",
        BOTH,
        Log()
        .write(
            *commits(foo_0=1), *((number.to_bytes(2, "big", signed=True) + b"\0\1x", b"") for number in _UNKNOWN_TYPES)
        )
        .batches,
        {GROUP: _SIMPLE},
        cells(foo_0=1),
    ),
    *(
        Case(_SECTION, f"10 {name}", BOTH, Log().write(*commits(foo_0=1), pair).batches, fails=True)
        for name, pair in {
            "null key": (None, b""),
            "empty key": (b"", b""),
            "empty value": (commit("foo", 0, 1)[0], b""),
        }.items()
    ),
    Case(
        _SECTION,
        "11 hostile group ids",
        BOTH,
        Log()
        .write(*(commit("t", 0, 1, group=name) for name in _HOSTILE_IDS), classic(group="a,b", generation=2))
        .batches,
        {name: {"type": "Classic"} for name in _HOSTILE_IDS} | {"a,b": {"generation": 2}},
        {(name, "t", 0): 1 for name in _HOSTILE_IDS},
    ),
    Case(
        _SECTION,
        "compaction keeps the offset of the first record that is left, classic",
        CLASSIC,
        # Compaction removed the commit at 1, its batch's first record: the batch counts from 2, after the batch of 1.
        Log().write(*commits(bar_0=1, foo_0=2), producer=7).write(*commits(foo_0=3)).end(7).compacted({1, 2}).batches,
        {GROUP: _SIMPLE},
        cells(foo_0=3),
    ),
    Case(
        _SECTION,
        "a producer without a transaction, classic",
        CLASSIC,
        Log().write(*commits(foo_0=1), producer=7, transactional=False).batches,
        {GROUP: _SIMPLE},
        cells(foo_0=1),
    ),
    Case(
        _SECTION,
        "a producer without a transaction, new",
        NEW,
        Log().write(*commits(foo_0=1), producer=7, transactional=False).batches,
        {GROUP: _SIMPLE},
    ),
    Case(
        _SECTION,
        "another control type, classic",
        CLASSIC,
        Log().write(*commits(foo_0=1), producer=7).end(7, 2).end(7).batches,
    ),
    Case(
        _SECTION,
        "another control type, new",
        NEW,
        Log().write(*commits(foo_0=1), producer=7).end(7, 2).end(7).batches,
        {GROUP: _SIMPLE},
        cells(foo_0=1),
    ),
    _one(
        "two members with one instance id",
        classic(classic_member("a", groupInstanceId="i"), classic_member("b", groupInstanceId="i")),
        fails=True,
    ),
    _one(
        "a static member that is away",
        consumer_member(),
        new(3, {"epoch": 5}),
        new(6, {"assignmentEpoch": 5}),
        current(-2, T1=[0]),
        type="Consumer",
        state="Reconciling",
    ),
    _one(
        "topic ids",
        *_consumer_group(),
        **_CONSUMER,
        members=[
            {
                "member_id": "m1",
                "group_instance_id": None,
                "client_id": "clientId",
                "client_host": "clientHost",
                "assignment": [{"topic": T1, "partitions": [0, 1]}],
                "member_epoch": 5,
                "previous_member_epoch": 4,
                "member_state": "STABLE",
            }
        ],
    ),
)
