"""Groups from their cells: which of several types wins, and a classic group with its members and assignments."""

import random
import struct

import pytest

from offsetstream.coordinator.groups import derive_group
from offsetstream.coordinator.rows import GROUP_COLUMNS, MEMBER_COLUMNS, SUBSCRIPTION_COLUMNS, Cell
from offsetstream.tables.schema import load_schema
from tests.unit.coordinator.cells import (
    GROUP,
    brief,
    cell,
    classic,
    classic_member,
    consumer_group,
    consumer_member,
    rows_of,
    simple,
)

_OF_THE_PLACE = {"offsets_partition", "log_id", "in_coordinator_partition"}


def _expected_columns(table: str) -> list[str]:
    names = (name for name in load_schema(table).column_names if name not in _OF_THE_PLACE)
    return [f"{name}_ms" if name in {"record_timestamp", "state_timestamp"} else name for name in names]


def test_the_rows_have_the_columns_of_the_tables() -> None:
    assert list(GROUP_COLUMNS) == _expected_columns("groups")
    assert list(MEMBER_COLUMNS) == _expected_columns("group_members")
    assert list(SUBSCRIPTION_COLUMNS) == _expected_columns("member_subscriptions")
    rows = rows_of(*consumer_group())
    assert rows.subscriptions and rows.assignments
    assert all(list(row) == list(SUBSCRIPTION_COLUMNS) for row in rows.subscriptions)
    assert list(rows.group) == list(GROUP_COLUMNS)
    assert all(list(row) == list(MEMBER_COLUMNS) for row in rows.members)
    assert all(list(row) == _expected_columns("member_assignments") for row in rows.assignments)


def test_the_order_of_the_cells_does_not_matter() -> None:
    cells = [simple(1), *consumer_group(), consumer_member(30, "m2")]
    expected = rows_of(*cells)
    shuffled = random.Random(1)
    for _ in range(20):
        shuffled.shuffle(cells)
        assert rows_of(*cells) == expected


WITH_MEMBERS = classic(50, [classic_member("m9")])
SHARE = {"epoch": 2, "metadataHash": 0}
REGEX = cell(16, 5, {"topics": [], "version": 1, "timestamp": 1}, regularExpression="a.*")
SHARE_STATE = cell(15, 5, {"initializingTopics": [], "initializedTopics": [], "deletingTopics": []})


@pytest.mark.parametrize(
    ("cells", "group_type", "members"),
    [
        ([simple(1), *consumer_group()], "Consumer", ["m1"]),
        ([simple(1), consumer_member(2, "m1")], "Consumer", ["m1"]),
        ([*consumer_group(), WITH_MEMBERS], "Classic", ["m9"]),
        ([*consumer_group(), simple(50), consumer_member(51, "m2")], "Consumer", ["m2"]),  # the old one stays gone
        ([WITH_MEMBERS, consumer_member(51, "m1")], "Classic", ["m9"]),
        ([WITH_MEMBERS, consumer_member(51, "m1"), cell(3, 52, {"epoch": 4})], "Consumer", ["m1"]),
        # Of two newer types the one with the later group record wins.
        ([*consumer_group(), cell(11, 40, SHARE)], "Share", []),
        ([*consumer_group(), cell(11, 3, SHARE)], "Consumer", ["m1"]),
        ([*consumer_group(), cell(11, 40, SHARE), consumer_member(50, "m2")], "Share", []),
        ([cell(11, 40, SHARE), consumer_member(50, "m2")], "Share", []),
        # A single other record makes a group, too.
        ([REGEX], "Consumer", []),
        ([SHARE_STATE], "Share", []),
    ],
)
def test_the_type_of_a_group_with_records_of_several(cells: list[Cell], group_type: str, members: list[str]) -> None:
    rows = rows_of(*cells)
    assert rows.group["group_type"] == group_type
    assert [row["member_id"] for row in rows.members] == members


def test_records_without_a_meaning_make_no_group() -> None:
    removed_type = Cell(9, {"groupId": GROUP}, {"topics": []}, 5, None)
    assert derive_group([removed_type], group_id=GROUP, exists=False) is None
    offsets_only = derive_group([removed_type], group_id=GROUP, exists=True)
    assert offsets_only is not None
    assert offsets_only.group["is_simple"] is True


def test_a_group_with_a_member_is_stable() -> None:
    rows = rows_of(classic(7, [classic_member("m1")]))
    assert rows.group == {
        "group_id": "g",
        "group_type": "Classic",
        "state": "Stable",
        "is_simple": False,
        "protocol_type": "consumer",
        "protocol": "range",
        "generation": 3,
        "group_epoch": None,
        "assignment_epoch": None,
        "leader_member_id": "m1",
        "member_count": 1,
        "state_timestamp_ms": 1_600_000_000_000,
        "record_offset": 7,
        "record_timestamp_ms": 1_700_000_000_007,
    }
    assert [row for row in rows.members if row["member_id"] == "m1"] == rows.members
    assert rows.members[0]["client_host"] == "/10.0.0.1"
    assert rows.members[0]["is_classic_protocol"] is True
    assert brief(rows.assignments) == [("assigned", "foo", 0, None), ("assigned", "foo", 1, None)]
    assert {row["record_offset"] for row in rows.members + rows.assignments} == {7}


def test_a_group_without_members_is_empty_but_not_simple() -> None:
    group = rows_of(classic(7, [], leader=None, protocol=None)).group
    assert (group["state"], group["is_simple"], group["member_count"]) == ("Empty", False, 0)
    assert group["leader_member_id"] is None


def test_the_generation_0_record_is_a_simple_group() -> None:
    group = rows_of(simple(7)).group
    assert (group["state"], group["is_simple"], group["protocol_type"]) == ("Empty", True, None)


def test_a_group_with_members_is_not_simple_even_without_a_protocol_type() -> None:
    group = rows_of(classic(7, [classic_member("m1")], protocolType="")).group
    assert (group["is_simple"], group["protocol_type"]) == (False, None)


def test_the_first_member_is_leader_if_the_record_names_none() -> None:
    cell = classic(7, [classic_member("m2"), classic_member("m1")], leader=None)
    assert rows_of(cell).group["leader_member_id"] == "m2"


def test_a_state_timestamp_of_minus_one_is_null() -> None:
    assert rows_of(classic(7, [], currentStateTimestamp=-1)).group["state_timestamp_ms"] is None
    assert rows_of(classic(7, [], version=1)).group["state_timestamp_ms"] is None


def test_the_session_timeout_replaces_a_missing_rebalance_timeout() -> None:
    members = rows_of(classic(7, [classic_member("m2", rebalanceTimeout=-1), classic_member("m3")])).members
    assert [row["rebalance_timeout_ms"] for row in members] == [45_000, 300_000]
    oldest = classic_member("m1")
    del oldest["groupInstanceId"], oldest["rebalanceTimeout"]
    assert rows_of(classic(7, [oldest], version=0)).members[0]["rebalance_timeout_ms"] == 45_000


def test_old_versions_have_no_instance_ids() -> None:
    members = rows_of(classic(7, [classic_member("m1"), classic_member("m2", groupInstanceId="i2")])).members
    assert [row["group_instance_id"] for row in members] == [None, "i2"]
    old = classic_member("m1")
    del old["groupInstanceId"]
    assert rows_of(classic(7, [old], version=2)).members[0]["group_instance_id"] is None


def test_only_assignments_of_the_consumer_protocol_are_read() -> None:
    rows = rows_of(classic(7, [classic_member("m1")], protocolType="connect"))
    assert (len(rows.members), rows.assignments) == (1, [])


def test_empty_and_damaged_assignments_give_no_rows() -> None:
    members = [classic_member("m1", b""), classic_member("m2", b"\x00"), classic_member("m3", b"\xff" * 40)]
    rows = rows_of(classic(7, members))
    assert (len(rows.members), rows.assignments) == (3, [])


def test_a_partition_assigned_twice_is_one_row() -> None:
    entry = b"\x00\x03foo" + struct.pack(">iii", 2, 1, 1)
    twice = struct.pack(">hi", 0, 2) + entry + entry + struct.pack(">i", -1)
    assert brief(rows_of(classic(7, [classic_member("m1", twice)])).assignments) == [("assigned", "foo", 1, None)]


def test_a_member_listed_twice_is_one_member() -> None:
    rows = rows_of(classic(7, [classic_member("m1"), classic_member("m1", clientId="later")]))
    assert [row["client_id"] for row in rows.members] == ["later"]
    assert rows.group["member_count"] == 1


def test_a_group_with_offsets_only_is_empty_and_simple() -> None:
    rows = rows_of()
    assert {name: value for name, value in rows.group.items() if value is not None} == {
        "group_id": "g",
        "group_type": "Classic",
        "state": "Empty",
        "is_simple": True,
        "generation": 0,
        "member_count": 0,
    }
    assert (rows.members, rows.assignments) == ([], [])


def test_without_cells_and_offsets_there_is_no_group() -> None:
    assert derive_group([], group_id=GROUP, exists=False) is None
