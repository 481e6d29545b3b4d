"""The logs of Kafka's own tests of share and streams groups (reference 9.4)."""

from __future__ import annotations

from tests.conformance.builder import (
    FIXTURE,
    GROUP,
    Log,
    cells,
    commits,
    new,
    streams_current,
    streams_member,
    streams_target,
    topology,
)
from tests.conformance.case import NEW, Case
from tests.conformance.new_groups import (
    ALL_LEFT,
    ANON,
    GROUPS,
    SHARE,
    STREAMS,
    STREAMS_EPOCH,
    replay_case,
    shown,
)

SHARE_AND_STREAMS_CASES = (
    replay_case(
        "testReplayShareGroupTargetAssignmentMetadata", new(12, {"assignmentEpoch": 10}), **SHARE, assignment_epoch=10
    ),
    replay_case("testReplayShareGroupTargetAssignmentMetadataTombstone", new(12, None)),
    replay_case(
        "testReplayShareGroupTargetAssignmentMetadataTombstoneExisting",
        new(12, {"assignmentEpoch": 10}),
        new(12, None),
        **SHARE,
        assignment_epoch=-1,
    ),
    replay_case(
        "testReplayStreamsGroupMemberMetadata",
        streams_member(),
        **STREAMS | {"state": "NotReady", "members": [shown(None, None, None)]},
    ),
    Case(
        GROUPS,
        "testReplayStreamsGroupMemberMetadataWithSimpleClassicGroup",
        NEW,
        Log().write(*commits(**FIXTURE), streams_member()).batches,
        {GROUP: STREAMS | {"state": "NotReady", "members": [shown(None, None, None)]}},
        cells(**FIXTURE),
    ),
    replay_case("testReplayStreamsGroupMemberMetadataTombstoneNotExisting", new(19, None, memberId="m1")),
    replay_case(
        "testReplayStreamsGroupMemberMetadataTombstoneExisting",
        streams_member(),
        streams_current(1),
        new(22, None, memberId="m1"),
        new(19, None, memberId="m1"),
        **STREAMS,
    ),
    replay_case("testReplayStreamsGroupMetadata", new(17, STREAMS_EPOCH), **STREAMS, epoch=5),
    replay_case("testReplayStreamsGroupEpochTombstoneNotExisting", new(17, None)),
    replay_case(
        "testReplayStreamsGroupEpochTombstoneExisting",
        new(17, STREAMS_EPOCH),
        new(20, {"assignmentEpoch": 5}),
        new(20, None),
        new(17, None),
    ),
    replay_case("testReplayStreamsGroupTargetAssignmentMember", streams_target(s=[0]), **STREAMS),
    replay_case("testReplayStreamsGroupTargetAssignmentMemberTombstoneNonExisting", new(21, None, memberId="m1")),
    replay_case(
        "testReplayStreamsGroupTargetAssignmentMemberTombstoneExisting",
        streams_target(s=[0]),
        new(21, None, memberId="m1"),
        new(20, None),  # it would fail if a target remained
        **STREAMS,
    ),
    replay_case(
        "testReplayStreamsGroupTargetAssignmentMetadata",
        new(20, {"assignmentEpoch": 5}),
        **STREAMS,
        assignment_epoch=5,
    ),
    replay_case("testReplayStreamsGroupTargetAssignmentMetadataTombstoneNotExisting", new(20, None)),
    replay_case(
        "testReplayStreamsGroupTargetAssignmentMetadataTombstoneExisting",
        new(20, {"assignmentEpoch": 5}),
        new(20, None),
        **STREAMS,
        assignment_epoch=-1,
    ),
    replay_case(
        "testReplayStreamsGroupCurrentMemberAssignment",
        streams_current(10, s=[0, 1]),
        **STREAMS
        | {
            "state": "NotReady",
            "members": [
                shown(10, 9, "STABLE", {"role": "active", "subtopology_id": "s", "partitions": [0, 1]})
                | {"client_id": "", "client_host": ""}
            ],
        },
    ),
    replay_case("testReplayStreamsGroupCurrentMemberAssignmentTombstoneNotExisting", new(22, None, memberId="m1")),
    replay_case(
        "testReplayStreamsGroupCurrentMemberAssignmentTombstoneExisting",
        streams_current(10, s=[0]),
        new(22, None, memberId="m1"),
        **STREAMS | {"state": "NotReady", "members": [ALL_LEFT | ANON]},
    ),
    replay_case(
        "testReplayStreamsGroupCurrentMemberAssignmentWithCompaction",
        streams_member(process="p1"),
        streams_member("m2", process="p2"),
        streams_current(11, s=[0]),
        streams_current(12, "m2", s=[0]),
        streams_current(13),
        **STREAMS
        | {
            "state": "NotReady",
            "members": [
                shown(13, 12),
                shown(12, 11, "STABLE", {"role": "active", "subtopology_id": "s", "partitions": [0]})
                | {"member_id": "m2"},
            ],
        },
    ),
    replay_case(
        "testReplayStreamsGroupCurrentMemberAssignmentUnownedTopologyWithCompaction",
        streams_current(11, s=[0]),
        streams_current(12, "m2", s=[0]),
        new(22, None, memberId="m2"),
        new(22, None, memberId="m1"),
        **STREAMS | {"state": "NotReady", "members": [ALL_LEFT | ANON, ALL_LEFT | ANON | {"member_id": "m2"}]},
    ),
    replay_case("testReplayStreamsGroupTopology", topology(), **STREAMS),
    replay_case("testReplayStreamsGroupTopologyTombstoneNotExists", new(23, None)),
    replay_case(
        "testReplayStreamsGroupTopologyTombstoneExists",
        streams_member(),
        streams_current(5),
        new(17, STREAMS_EPOCH),
        new(20, {"assignmentEpoch": 5}),
        topology(),
        new(23, None),
        **STREAMS | {"state": "NotReady", "members": [shown(5, 4)]},
    ),
)
