from typing import Any

import pytest

from offsetstream.coordinator.rows import Cell
from tests.unit.coordinator.cells import (
    T1,
    T2,
    brief,
    cell,
    consumer_group,
    consumer_member,
    current,
    rows_of,
)


def test_a_consumer_group() -> None:
    rows = rows_of(*consumer_group())
    assert {name: value for name, value in rows.group.items() if value is not None} == {
        "group_id": "g",
        "group_type": "Consumer",
        "state": "Stable",
        "is_simple": False,
        "group_epoch": 5,
        "assignment_epoch": 5,
        "member_count": 1,
        "record_offset": 14,
        "record_timestamp_ms": 1_700_000_000_014,
    }
    assert {name: value for name, value in rows.members[0].items() if value is not None} == {
        "group_id": "g",
        "member_id": "m1",
        "client_id": "client",
        "client_host": "/10.0.0.1",
        "rebalance_timeout_ms": 45_000,
        "member_epoch": 5,
        "previous_member_epoch": 4,
        "member_state": "STABLE",
        "is_classic_protocol": False,
        "subscribed_topic_regex": "",
        "record_offset": 14,
        "record_timestamp_ms": 1_700_000_000_014,
    }
    assert brief(rows.assignments) == [
        ("assigned", T1, 0, 5),
        ("assigned", T1, 1, 5),
        ("target", T1, 0, None),
        ("target", T1, 1, None),
    ]
    assert [row["record_offset"] for row in rows.assignments] == [14, 14, 12, 12]
    assert {row["topic"] for row in rows.assignments} == {T1}  # the topic's name is unknown


@pytest.mark.parametrize(
    ("epochs", "state"),
    [
        ((5, 5, 5), "Stable"),
        ((6, 5, 5), "Assigning"),
        ((6, 6, 5), "Reconciling"),
        ((5, 5, -2), "Reconciling"),
    ],
)
def test_the_state_of_a_consumer_group(epochs: tuple[int, int, int], state: str) -> None:
    assert rows_of(*consumer_group(*epochs)).group["state"] == state


def test_a_member_with_partitions_to_revoke_keeps_the_group_reconciling() -> None:
    revoking = current(20, "m1", 5, state=1, partitionsPendingRevocation=[{"topicId": T2, "partitions": [3]}])
    rows = rows_of(*consumer_group()[:-1], revoking)
    assert rows.group["state"] == "Reconciling"
    assert rows.members[0]["member_state"] == "UNREVOKED_PARTITIONS"
    assert ("pending_revocation", T2, 3, 5) in brief(rows.assignments)


def test_a_consumer_group_whose_members_left_is_empty() -> None:
    rows = rows_of(cell(3, 20, {"epoch": 9}), cell(6, 13, {"assignmentEpoch": 5}))
    assert (rows.group["state"], rows.group["member_count"], rows.group["group_epoch"]) == ("Empty", 0, 9)


def test_a_static_member_that_left_temporarily_keeps_its_partitions_at_epoch_0() -> None:
    rows = rows_of(*consumer_group(5, 5, -2))
    assert rows.members[0]["member_epoch"] == -2
    assert brief(rows.assignments)[:2] == [("assigned", T1, 0, 0), ("assigned", T1, 1, 0)]


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [([2, 3], [2, 3]), ([2], [5, 5]), (None, [5, 5]), ([], [5, 5])],
    ids=["one for each", "too few", "null", "none"],
)
def test_assignment_epochs(epochs: list[int] | None, expected: list[int]) -> None:
    assigned = [{"topicId": T1, "partitions": [0, 1], "assignmentEpochs": epochs}]
    rows = rows_of(*consumer_group()[:-1], current(14, "m1", 5, assignedPartitions=assigned))
    assert [row["assignment_epoch"] for row in rows.assignments if row["kind"] == "assigned"] == expected


def test_the_last_entry_of_a_topic_counts() -> None:
    entries = [{"topicId": T1, "partitions": [0, 0, 7]}, {"topicId": T1, "partitions": [2, 2]}]
    rows = rows_of(current(14, "m1", 5, assignedPartitions=entries))
    assert brief(rows.assignments) == [("assigned", T1, 2, 5)]


@pytest.mark.parametrize(("state", "name"), [(0, "STABLE"), (2, "UNRELEASED_PARTITIONS"), (9, "UNKNOWN")])
def test_member_states(state: int, name: str) -> None:
    assert rows_of(current(1, "m1", 5, state=state)).members[0]["member_state"] == name


def test_a_member_of_the_classic_protocol_in_a_consumer_group() -> None:
    metadata = {"sessionTimeoutMs": 30_000, "supportedProtocols": []}
    members = rows_of(consumer_member(1, "a", classicMemberMetadata=metadata), consumer_member(2, "b")).members
    assert [(row["is_classic_protocol"], row["session_timeout_ms"]) for row in members] == [
        (True, 30_000),
        (False, None),
    ]


def test_absent_classic_member_metadata_means_a_classic_member() -> None:
    member = consumer_member(1, "a", classicMemberMetadata={"sessionTimeoutMs": 0, "supportedProtocols": []})
    assert "classicMemberMetadata" not in member.value
    row = rows_of(member).members[0]
    assert (row["is_classic_protocol"], row["session_timeout_ms"]) == (True, 0)


def test_records_of_3_7_are_read() -> None:
    member = consumer_member(1, "m1", assignors=[])
    epochs = {"memberEpoch": 4, "previousMemberEpoch": 3, "targetMemberEpoch": 4}
    rest = {"error": 0, "metadataVersion": 0, "metadataBytes": ""}
    assigned = [{"topicId": T1, "partitions": [0]}]

    def current_of_3_7(revoking: list[Any], assigning: list[Any]) -> Cell:
        pending = {"partitionsPendingRevocation": revoking, "partitionsPendingAssignment": assigning}
        return cell(8, 2, epochs | {"assignedPartitions": assigned} | pending | rest, memberId="m1")

    row = rows_of(member, current_of_3_7([], [])).members[0]
    assert (row["is_classic_protocol"], row["member_state"], row["member_epoch"]) == (False, "STABLE", 4)
    revoking = rows_of(current_of_3_7([{"topicId": T2, "partitions": [1]}], assigned))
    assert revoking.members[0]["member_state"] == "UNREVOKED_PARTITIONS"
    assert brief(revoking.assignments) == [("assigned", T1, 0, 4), ("pending_revocation", T2, 1, 4)]
    assert rows_of(current_of_3_7([], assigned)).members[0]["member_state"] == "UNRELEASED_PARTITIONS"


def test_members_may_come_before_their_group_and_without_an_assignment() -> None:
    rows = rows_of(consumer_member(1, "m1"), current(2, "m2", 1))
    assert rows.group["group_epoch"] == 1
    assert [(row["member_id"], row["member_epoch"], row["client_id"]) for row in rows.members] == [
        ("m1", 0, "client"),
        ("m2", 1, None),
    ]


def test_a_target_assignment_alone_makes_no_member() -> None:
    rows = rows_of(cell(7, 1, {"topicPartitions": [{"topicId": T1, "partitions": [0]}]}, memberId="gone"))
    assert (rows.group["state"], rows.members, rows.assignments) == ("Empty", [], [])


def share_group() -> list[Cell]:
    member: dict[str, Any] = {
        "rackId": "r1",
        "clientId": "client",
        "clientHost": "/10.0.0.1",
        "subscribedTopicNames": ["t"],
    }
    return [
        cell(10, 1, member, memberId="m1"),
        cell(11, 2, {"epoch": 4, "metadataHash": 1}),
        cell(13, 3, {"topicPartitions": [{"topicId": T1, "partitions": [0]}]}, memberId="m1"),
        cell(12, 4, {"assignmentEpoch": 3}),
        current(5, "m1", 2, key_type=14, assignedPartitions=[{"topicId": T1, "partitions": [0]}]),
    ]


def test_a_share_group_is_stable_whatever_its_epochs() -> None:
    rows = rows_of(*share_group())
    assert (rows.group["group_type"], rows.group["state"]) == ("Share", "Stable")
    assert (rows.group["group_epoch"], rows.group["assignment_epoch"]) == (4, 3)
    assert (rows.members[0]["rack_id"], rows.members[0]["member_epoch"]) == ("r1", 2)
    assert brief(rows.assignments) == [("assigned", T1, 0, None), ("target", T1, 0, None)]


def test_a_share_group_without_members_is_empty() -> None:
    assert rows_of(cell(11, 2, {"epoch": 4, "metadataHash": 1})).group["state"] == "Empty"


def streams_group(**group: Any) -> list[Cell]:
    member: dict[str, Any] = {
        "instanceId": None,
        "rackId": None,
        "clientId": "client",
        "clientHost": "/10.0.0.1",
        "rebalanceTimeoutMs": 300_000,
        "topologyEpoch": 0,
        "processId": "p1",
        "userEndpoint": {"host": "h", "port": 9000},
        "clientTags": [],
    }
    tasks = {
        "activeTasks": [{"subtopologyId": "0", "partitions": [0, 1]}],
        "standbyTasks": [{"subtopologyId": "1", "partitions": [2]}],
        "warmupTasks": [{"subtopologyId": "1", "partitions": [3]}],
    }
    revoked: dict[str, list[Any]] = {f"{name}PendingRevocation": [] for name in tasks}
    revoked["activeTasksPendingRevocation"] = [{"subtopologyId": "0", "partitions": [9], "assignmentEpochs": [2]}]
    epochs = {"memberEpoch": 3, "previousMemberEpoch": 2, "state": 1}
    return [
        cell(19, 1, member, memberId="m1"),
        cell(17, 2, {"epoch": 3, "metadataHash": 1, "validatedTopologyEpoch": 0} | group),
        cell(23, 3, {"epoch": 0, "subtopologies": []}),
        cell(21, 4, tasks, memberId="m1"),
        cell(20, 5, {"assignmentEpoch": 3}),
        cell(22, 6, epochs | tasks | revoked, memberId="m1"),
    ]


def test_a_streams_group() -> None:
    rows = rows_of(*streams_group())
    assert (rows.group["group_type"], rows.group["state"]) == ("Streams", "Stable")
    member = rows.members[0]
    assert (member["process_id"], member["user_endpoint"], member["topology_epoch"]) == ("p1", "h:9000", 0)
    assert member["member_state"] == "STABLE"
    assert brief(rows.assignments) == [
        ("active", "0", 0, 3),
        ("active", "0", 1, 3),
        ("standby", "1", 2, None),
        ("warmup", "1", 3, None),
        ("pending_revocation", "0", 9, 2),
        ("target", "0", 0, None),
        ("target", "0", 1, None),
        ("target", "1", 2, None),
        ("target", "1", 3, None),
    ]


@pytest.mark.parametrize(
    ("cells", "state", "epoch"),
    [
        (streams_group(validatedTopologyEpoch=-1), "NotReady", 3),
        ([c for c in streams_group() if c.key_type != 23], "NotReady", 3),  # without a topology
        ([c for c in streams_group() if c.key_type != 22], "Reconciling", None),  # without a current assignment
        (streams_group(epoch=4), "Assigning", 3),
        ([cell(17, 2, {"epoch": 3, "metadataHash": 1})], "Empty", None),
    ],
)
def test_the_state_of_a_streams_group(cells: list[Cell], state: str, epoch: int | None) -> None:
    rows = rows_of(*cells)
    assert rows.group["state"] == state
    assert [row["member_epoch"] for row in rows.members] == ([] if state == "Empty" else [epoch])
