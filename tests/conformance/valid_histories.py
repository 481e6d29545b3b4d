"""Random logs as a broker writes them: groups of all types are created, change, convert and are deleted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import strategies as st

from offsetstream.coordinator.partitioning import Coordinator
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
from tests.conformance.histories import History

NAMES = ("a", "b", "😀", "a,\n")
_MEMBERS = ("m1", "m2")
_NO_GROUP, _SIMPLE, _CLASSIC, _CONSUMER, _SHARE, _STREAMS = "none", "simple", "classic", "consumer", "share", "streams"
_JOINS = {_CONSUMER, _SHARE, _STREAMS}
# Per type: the records of member, target epoch, target, current assignment, the group's own, and further ones.
_TYPES = {_CONSUMER: (5, 6, 7, 8, 3, (4,)), _SHARE: (10, 12, 13, 14, 11, (15,)), _STREAMS: (19, 20, 21, 22, 17, (23,))}
# A partition never has two owners.
_PARTITIONS = {member: st.lists(st.sampled_from(own), unique=True) for member, own in (("m1", (0, 2)), ("m2", (1, 3)))}


@dataclass
class _Group:
    """A group as its coordinator knows it, and the records of its next change."""

    name: str
    draw: st.DrawFn
    is_classic_coordinator: bool
    kind: str = _NO_GROUP
    epoch: int = 0
    members: set[str] = field(default_factory=set)
    offsets: set[tuple[str, int]] = field(default_factory=set)

    def step(self) -> Iterator[Pair]:
        """Write the records of one change of the group."""
        actions = ["commit", "commit", "forget", "delete", "change", "change"]
        action = self.draw(st.sampled_from(actions))
        if action == "commit" and self.kind != _SHARE:
            yield from self.commits()
        elif action == "forget" and self.offsets:
            place = self.draw(st.sampled_from(sorted(self.offsets)))
            self.offsets.discard(place)
            yield forget(*place, group=self.name)
        elif action == "delete" and self.kind != _NO_GROUP and not self.members:
            yield from self._delete()
        elif action == "change":
            yield from self._change()

    def commits(self) -> Iterator[Pair]:
        if self.kind == _NO_GROUP:
            self.kind = _SIMPLE
        for _ in range(self.draw(st.integers(1, 3))):
            place = (self.draw(st.sampled_from("tu")), self.draw(st.integers(0, 1)))
            self.offsets.add(place)
            yield commit(*place, self.draw(st.integers(0, 99)), group=self.name, version=self.draw(st.integers(1, 4)))

    def _delete(self) -> Iterator[Pair]:
        for place in sorted(self.offsets):
            yield forget(*place, group=self.name)
        if self.kind in _JOINS:
            yield from self._group_tombstones()
        elif self.kind == _CLASSIC or not self.is_classic_coordinator:
            yield classic_tombstone(self.name)
        self.kind, self.epoch = _NO_GROUP, 0
        self.offsets.clear()

    def _change(self) -> Iterator[Pair]:
        if self.kind in _JOINS:
            if self.kind == _CONSUMER and self.draw(st.integers(0, 4)) == 0:
                yield from self._downgrade()
            else:
                yield from self._join_or_leave()
            return
        kinds = [_CLASSIC] if self.is_classic_coordinator else [_CLASSIC, _CLASSIC, *sorted(_JOINS)]
        kind = self.draw(st.sampled_from(kinds))
        if kind == _CLASSIC:
            yield from self._rebalance()
        elif kind == _CONSUMER or (not self.members and not (kind == _SHARE and self.offsets)):
            yield from self._convert(kind)

    def _rebalance(self) -> Iterator[Pair]:
        """A classic group's next generation, with members or without."""
        self.kind, self.epoch = _CLASSIC, self.epoch + 1
        self.members = set(self.draw(st.lists(st.sampled_from(_MEMBERS), unique=True)))
        members = [
            classic_member(
                name, subscription=subscription("t", "u"), assignment=assignment(t=self.draw(_PARTITIONS[name]))
            )
            for name in sorted(self.members)
        ]
        yield classic(*members, group=self.name, generation=self.epoch, version=self.draw(st.integers(1, 4)))

    def _convert(self, kind: str) -> Iterator[Pair]:
        if self.kind in (_SIMPLE, _CLASSIC):
            yield classic_tombstone(self.name)
        before, self.kind, self.members = self.members, kind, set()
        for member in sorted(before) or [self.draw(st.sampled_from(_MEMBERS))]:
            yield from self._join(member)

    def _downgrade(self) -> Iterator[Pair]:
        """The last member of the consumer protocol leaves: the group becomes a classic one (reference 5.8)."""
        yield from self._member_tombstones(sorted(self.members))
        yield from self._group_tombstones()
        self.kind = _CLASSIC
        members = [classic_member(name, subscription=subscription("t")) for name in sorted(self.members)]
        yield classic(*members, group=self.name, generation=self.epoch)

    def _join_or_leave(self) -> Iterator[Pair]:
        member = self.draw(st.sampled_from(_MEMBERS))
        if member in self.members and self.draw(st.booleans()):
            self.members.discard(member)
            self.epoch += 1
            yield from self._member_tombstones([member])
            yield self._group_record()
        else:
            yield from self._join(member)

    def _join(self, member: str) -> Iterator[Pair]:
        self.members.add(member)
        self.epoch += 1
        has, reconciled = self.draw(_PARTITIONS[member]), self.draw(st.integers(0, self.epoch))
        _, target_epoch, target, _, _, _ = _TYPES[self.kind]
        if self.kind == _STREAMS:
            yield topology(self.draw(st.integers(0, 1)), group=self.name)
            yield streams_member(member, group=self.name)
            yield self._group_record()
            yield streams_target(member, group=self.name, s=has)
            yield new(target_epoch, {"assignmentEpoch": self.epoch}, group=self.name)
            yield streams_current(reconciled, member, group=self.name, s=has)
            return
        write = consumer_member if self.kind == _CONSUMER else share_member
        yield write(member, group=self.name)
        yield self._group_record()
        yield new(target, {"topicPartitions": topics(T1=has)}, group=self.name, memberId=member)
        yield new(target_epoch, {"assignmentEpoch": self.epoch}, group=self.name)
        now = current if self.kind == _CONSUMER else share_current
        yield now(reconciled, member, group=self.name, T1=has)

    def _group_record(self) -> Pair:
        values = {
            _CONSUMER: {"epoch": self.epoch},
            _SHARE: {"epoch": self.epoch, "metadataHash": 1},
            _STREAMS: {"epoch": self.epoch, "metadataHash": 1, "validatedTopologyEpoch": 1},
        }
        return new(_TYPES[self.kind][4], values[self.kind], group=self.name)

    def _member_tombstones(self, members: list[str]) -> Iterator[Pair]:
        member_type, _, target, now, _, _ = _TYPES[self.kind]
        for key_type in (now, target, member_type):
            for member in members:
                yield new(key_type, None, group=self.name, memberId=member)

    def _group_tombstones(self) -> Iterator[Pair]:
        _, target_epoch, _, _, own, further = _TYPES[self.kind]
        for key_type in (target_epoch, *further, own):
            yield new(key_type, None, group=self.name)


@st.composite
def valid_histories(draw: st.DrawFn, coordinator: Coordinator, max_steps: int = 20) -> History:
    """A log of some steps; transactions end before anything else happens to their group."""
    log, is_classic = Log(draw(st.integers(0, 9))), coordinator == "classic"
    groups = [_Group(name, draw, is_classic) for name in NAMES[: draw(st.integers(1, len(NAMES)))]]
    for _ in range(draw(st.integers(1, max_steps))):
        group = draw(st.sampled_from(groups))
        if group.kind not in (_NO_GROUP, _SHARE) and draw(st.integers(0, 5)) == 0:
            _transaction(log, group, draw)
        else:
            pairs = tuple(group.step())
            if pairs:
                log.write(*pairs)
    return History(log.batches)


def _transaction(log: Log, group: _Group, draw: st.DrawFn) -> None:
    before = set(group.offsets)
    producer = draw(st.sampled_from((7, 8)))
    log.write(*group.commits(), producer=producer)
    if draw(st.booleans()):
        log.end(producer)
    else:
        group.offsets = before
        log.abort(producer)
