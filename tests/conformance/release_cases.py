"""Logs that Kafka releases load differently: the result in each tested release (reference 5.11).

Real brokers load them in tests/kafka/test_release_rules.py, the model in
tests/unit/coordinator/test_release_rules.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from offsetstream.coordinator.partitioning import partition_for
from tests.conformance.builder import (
    Pair,
    classic,
    classic_member,
    classic_tombstone,
    commit,
    consumer_member,
    current,
    new,
    streams_current,
    streams_member,
    streams_target,
    topics,
    topology,
)

RELEASES = ("4.0.1", "4.0.2", "4.1.1", "4.1.2", "4.2.0", "4.2.1", "4.3.1", "4.4.0")
TOO_MANY = 1_000_001


@dataclass(frozen=True)
class ReleaseCase:
    """A log of the group named like the case, and the group type that each release's load makes of it.

    None is a failed load, "" a log without a group. `by_release` has the releases that differ from `otherwise`.
    """

    group: str
    pairs: tuple[Pair, ...]
    otherwise: str | None
    by_release: dict[str, str | None]

    def type_in(self, release: str) -> str | None:
        return self.by_release.get(release, self.otherwise)

    @property
    def partition(self) -> int:
        return partition_for(self.group, 50)


def _consumer_group(group: str, epoch: int, *members: str) -> tuple[Pair, ...]:
    """The records of a consumer group, in the order in which a conversion writes them."""
    own = {member: [number] for number, member in enumerate(members)}
    return (
        *(consumer_member(member, group=group) for member in members),
        new(3, {"epoch": epoch}, group=group),
        *(new(7, {"topicPartitions": topics(T1=own[m])}, group=group, memberId=m) for m in members),
        new(6, {"assignmentEpoch": epoch}, group=group),
        *(current(epoch, member, group=group, T1=own[member]) for member in members),
    )


def _tombstones(group: str, *members: str) -> tuple[Pair, ...]:
    """What ends a consumer group (reference 5.7)."""
    return (
        *(new(8, None, group=group, memberId=member) for member in members),
        *(new(7, None, group=group, memberId=member) for member in members),
        new(6, None, group=group),
        *(new(5, None, group=group, memberId=member) for member in members),
        new(4, None, group=group),
        new(3, None, group=group),
    )


def _classic(group: str, generation: int) -> Pair:
    return classic(classic_member("old"), group=group, generation=generation)


def _streams_group(group: str) -> tuple[Pair, ...]:
    return (
        topology(group=group),
        streams_member(group=group),
        new(17, {"epoch": 2, "metadataHash": 1, "validatedTopologyEpoch": 1}, group=group),
        streams_target(group=group, s=[0]),
        new(20, {"assignmentEpoch": 2}, group=group),
        streams_current(2, group=group, s=[0]),
    )


UPGRADED, DOWNGRADED, LARGE_ARRAY = "upgraded-21117", "downgraded-21117", "large-array"
RELEASE_CASES = (
    # The same in every release here.
    ReleaseCase("tombstones-17306", _tombstones("tombstones-17306", "m1"), "", {}),
    ReleaseCase(
        "commits-17306",
        (commit("foo", 0, 7, group="commits-17306"), *_consumer_group("commits-17306", 2, "m1")),
        "Consumer",
        {},
    ),
    # The record in which m1 gives up its partition is gone: m2 gets it first.
    ReleaseCase(
        "taken-over-19862",
        (
            *_consumer_group("taken-over-19862", 3, "m1"),
            current(4, "m2", group="taken-over-19862", T1=[0]),
            current(4, "m1", group="taken-over-19862"),
        ),
        "Consumer",
        {"4.0.1": None, "4.1.1": None},
    ),
    # Different at an equal epoch.
    ReleaseCase(
        "owned-twice",
        (*_consumer_group("owned-twice", 3, "m1"), current(3, "m2", group="owned-twice", T1=[0])),
        None,
        {},
    ),
    ReleaseCase("streams", _streams_group("streams"), "Streams", {"4.0.1": "", "4.0.2": ""}),
    ReleaseCase(
        "commits-20254",
        (commit("foo", 0, 7, group="commits-20254"), *_streams_group("commits-20254")),
        "Streams",
        {"4.0.1": "Classic", "4.0.2": "Classic", "4.1.1": None, "4.1.2": None, "4.2.0": None},
    ),
    # The tombstone of the upgrade is gone.
    ReleaseCase(UPGRADED, (_classic(UPGRADED, 1), *_consumer_group(UPGRADED, 2, "m1")), None, {"unmerged": "Consumer"}),
    # The whole upgrade is gone.
    ReleaseCase(
        DOWNGRADED,
        (_classic(DOWNGRADED, 1), *_tombstones(DOWNGRADED, "m1"), _classic(DOWNGRADED, 5)),
        None,
        {"unmerged": "Classic"},
    ),
    # No record of the downgrade is left but tombstones: the classic group stays.
    ReleaseCase(
        "tombstones-21117",
        (_classic("tombstones-21117", 1), *_tombstones("tombstones-21117", "m1")),
        None,
        {"unmerged": "Classic"},
    ),
    # Of a leave only the member's own tombstone is left. Kafka's proposed rule for this is still under discussion.
    ReleaseCase(
        "member-21102",
        (*_consumer_group("member-21102", 2, "m1"), new(5, None, group="member-21102", memberId="m1")),
        None,
        {},
    ),
    ReleaseCase(
        "converted",
        (_classic("converted", 1), classic_tombstone("converted"), *_consumer_group("converted", 2, "m1")),
        "Consumer",
        {},
    ),
    ReleaseCase(
        LARGE_ARRAY,
        (
            *_consumer_group(LARGE_ARRAY, 2, "m1"),
            new(
                16,
                {"topics": [""] * TOO_MANY, "version": 1, "timestamp": 1},
                group=LARGE_ARRAY,
                regularExpression="a.*",
            ),
        ),
        "Consumer",
        {"4.4.0": None, "unmerged": None},
    ),
)
