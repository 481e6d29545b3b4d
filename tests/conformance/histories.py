"""Random logs of one partition: every record type, several producers, groups of all kinds under a few names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from hypothesis import strategies as st

from offsetstream.codec.batches import NO_PRODUCER, RecordBatch
from tests.conformance.builder import (
    Log,
    Pair,
    assignment,
    classic,
    classic_member,
    classic_tombstone,
    commit,
    consumer_member,
    current,
    forget,
    new,
    share_current,
    share_member,
    streams_current,
    streams_member,
    streams_target,
    subscription,
    topics,
    topology,
)

Step: TypeAlias = Callable[[Log], Log]
_GROUPS, _MEMBERS, _PRODUCERS = ("a", "b", "😀"), ("m1", "m2"), (7, 8, 9)
_SHARE_STATE: dict[str, list[object]] = {"initializingTopics": [], "initializedTopics": [], "deletingTopics": []}
_BROKEN: tuple[Pair, ...] = (
    (None, b""),
    (b"", None),
    (b"\0\1\0\1a", b""),
    (b"\0\2\0\1a", b"\0\3"),
    (b"\0\5\0\1a", None),
)
_UNKNOWN: tuple[Pair, ...] = (
    (b"\x7f\xff", b""),
    (b"\xff\xff\0", None),
    (b"\0\x09\0\1a", b""),
    (b"\0\x12\0\1a", b"\0\0"),
)

groups, members, epochs = st.sampled_from(_GROUPS), st.sampled_from(_MEMBERS), st.integers(0, 5)
producers = st.sampled_from(_PRODUCERS)
_partitions = st.lists(st.integers(0, 2), unique=True, max_size=3)


@st.composite
def offset_records(draw: st.DrawFn) -> Pair:
    """A commit or, half as often, a tombstone."""
    place = (draw(st.sampled_from("tu")), draw(st.integers(0, 1)))
    key_type, group = draw(st.sampled_from((0, 1, 1))), draw(groups)
    if draw(st.integers(0, 2)) == 0:
        return forget(*place, group=group, key_type=key_type)
    return commit(*place, draw(st.integers(0, 99)), group=group, key_type=key_type, version=draw(st.integers(0, 4)))


@st.composite
def classic_records(draw: st.DrawFn) -> Pair:
    """A classic group's record or its tombstone; now and then two members have one instance id."""
    group = draw(groups)
    if draw(st.integers(0, 2)) == 0:
        return classic_tombstone(group)
    count = draw(st.integers(0, 2))
    instances = draw(st.lists(st.sampled_from((None, None, "i")), min_size=count, max_size=count))
    found = (
        classic_member(name, groupInstanceId=instance, subscription=subscription("t"), assignment=assignment(t=[0]))
        for name, instance in zip(_MEMBERS, instances, strict=False)
    )
    kind = draw(st.sampled_from(("consumer", "connect", "")))
    return classic(*found, group=group, version=draw(st.integers(0, 4)), generation=draw(epochs), protocolType=kind)


@st.composite
def new_records(draw: st.DrawFn, group: str | None = None) -> Pair:
    """A record of a consumer, share or streams group, or a tombstone of one."""
    group, member, epoch, has = group or draw(groups), draw(members), draw(epochs), draw(_partitions)
    number = draw(st.integers(0, 2))
    pairs: tuple[Callable[[], Pair], ...] = (
        lambda: new(3, {"epoch": epoch}, group=group),
        lambda: new(4, {"topics": []}, group=group),
        lambda: consumer_member(member, group=group),
        lambda: new(6, {"assignmentEpoch": epoch}, group=group),
        lambda: new(7, {"topicPartitions": topics(T1=has)}, group=group, memberId=member),
        lambda: current(epoch, member, group=group, state=number, T1=has),
        lambda: new(16, {"topics": ["t"], "version": 1, "timestamp": 1}, group=group, regularExpression="t.*"),
        lambda: share_member(member, group=group),
        lambda: new(11, {"epoch": epoch, "metadataHash": 1}, group=group),
        lambda: new(12, {"assignmentEpoch": epoch}, group=group),
        lambda: new(13, {"topicPartitions": topics(T1=has)}, group=group, memberId=member),
        lambda: share_current(epoch, member, group=group, T1=has),
        lambda: new(15, _SHARE_STATE, group=group),
        lambda: new(17, {"epoch": epoch, "metadataHash": 1, "validatedTopologyEpoch": 1}, group=group),
        lambda: streams_member(member, group=group),
        lambda: new(20, {"assignmentEpoch": epoch}, group=group),
        lambda: streams_target(member, group=group, s=has),
        lambda: streams_current(epoch, member, group=group, s=has),
        lambda: topology(number % 2, group=group),
    )
    key, value = draw(st.sampled_from(pairs))()
    return key, None if draw(st.integers(0, 2)) == 0 else value


@st.composite
def conversions(draw: st.DrawFn) -> tuple[Pair, ...]:
    """A classic group that becomes a consumer group, and perhaps classic again, as brokers write it (reference 5.8)."""
    group, epoch = draw(groups), draw(epochs)
    upgrade = (
        classic_tombstone(group),
        consumer_member("m1", group=group),
        new(3, {"epoch": epoch}, group=group),
        new(7, {"topicPartitions": topics(T1=[0])}, group=group, memberId="m1"),
        new(6, {"assignmentEpoch": epoch}, group=group),
        current(epoch, "m1", group=group, T1=[0]),
    )
    tombstones = (
        *(new(8, None, group=group, memberId=name) for name in _MEMBERS),
        *(new(7, None, group=group, memberId=name) for name in _MEMBERS),
        new(6, None, group=group),
        *(new(5, None, group=group, memberId=name) for name in _MEMBERS),
        new(16, None, group=group, regularExpression="t.*"),
        new(4, None, group=group),
        new(3, None, group=group),
    )
    downgrade = (*tombstones, classic(classic_member("m1"), group=group, generation=epoch))
    return draw(st.sampled_from((upgrade, tombstones, (*upgrade, *downgrade), (*upgrade, *tombstones))))


def _write(pairs: tuple[Pair, ...], producer: int = NO_PRODUCER, transactional: bool | None = None) -> Step:
    return lambda log: log.write(*pairs, producer=producer, transactional=transactional)


_some_offsets = st.lists(offset_records(), min_size=1, max_size=3).map(tuple)
_broken_or_unknown = st.sampled_from(_BROKEN + _UNKNOWN * 3).map(lambda pair: _write((pair,)))
_steps: st.SearchStrategy[Step] = st.one_of(
    _some_offsets.map(_write),
    st.builds(_write, _some_offsets, producers),
    st.builds(_write, _some_offsets, producers, st.just(False)),  # an idempotent producer, no transaction
    st.builds(lambda producer, control: lambda log: log.end(producer, control), producers, st.integers(0, 2)),
    st.builds(lambda producer: lambda log: log.empty(producer, is_control=True), producers),
    st.just(lambda log: log.empty()),
    st.lists(classic_records(), min_size=1, max_size=2).map(tuple).map(_write),
    st.lists(new_records(), min_size=1, max_size=3).map(tuple).map(_write),
    groups.flatmap(lambda group: st.lists(new_records(group), min_size=2, max_size=6)).map(tuple).map(_write),
    conversions().map(_write),
    _broken_or_unknown,
)


@dataclass(frozen=True)
class History:
    """A log, possibly compacted."""

    batches: tuple[RecordBatch, ...]

    @property
    def offsets(self) -> list[int]:
        """The offsets at which the log may be cut: at its start, and after each batch and each record."""
        behind = [record.offset + 1 for batch in self.batches for record in batch.records]
        return sorted({0, *behind, *(batch.next_offset for batch in self.batches)})

    def between(self, start: int, end: int) -> list[RecordBatch]:
        """Return the log between two offsets; a batch across one of them is split."""
        return [_clipped(b, start, end) for b in self.batches if b.base_offset < end and b.next_offset > start]


def _clipped(batch: RecordBatch, start: int, end: int) -> RecordBatch:
    return replace(
        batch,
        base_offset=max(batch.base_offset, start),
        next_offset=min(batch.next_offset, end),
        records=tuple(record for record in batch.records if start <= record.offset < end),
    )


@st.composite
def histories(draw: st.DrawFn, max_steps: int = 25) -> History:
    """A log of some steps. In every second one, compaction has removed superseded records."""
    log = Log()
    for step in draw(st.lists(_steps, min_size=4, max_size=max_steps)):
        step(log)
    if draw(st.booleans()):
        latest = {record.key: record.offset for batch in log.batches for record in batch.records}
        dirty = draw(st.integers(0, len(log.batches)))
        bound = log.batches[dirty - 1].next_offset if dirty else 0
        kept = [r.offset for b in log.batches for r in b.records if r.offset >= bound or latest[r.key] == r.offset]
        log = log.compacted(kept)
    return History(log.batches)
