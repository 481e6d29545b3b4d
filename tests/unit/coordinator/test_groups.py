"""Which group a mix of records makes, and that its rows have the columns of the tables."""

import random

from offsetstream.coordinator.groups import derive_group
from offsetstream.coordinator.rows import GROUP_COLUMNS, MEMBER_COLUMNS, SUBSCRIPTION_COLUMNS, Cell
from offsetstream.tables.schema import load_schema
from tests.unit.coordinator.cells import (
    GROUP,
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


def test_a_simple_classic_group_is_replaced_by_a_newer_type() -> None:
    assert rows_of(simple(1), *consumer_group()).group["group_type"] == "Consumer"
    assert rows_of(simple(1), consumer_member(2, "m1")).group["group_type"] == "Consumer"


def test_a_later_classic_record_replaces_any_group() -> None:
    rows = rows_of(*consumer_group(), classic(50, [classic_member("m9")]))
    assert rows.group["group_type"] == "Classic"
    assert [row["member_id"] for row in rows.members] == ["m9"]


def test_a_group_replaced_by_a_classic_record_does_not_come_back() -> None:
    rows = rows_of(*consumer_group(), simple(50), consumer_member(51, "m2"))
    assert rows.group["group_type"] == "Consumer"
    assert [row["member_id"] for row in rows.members] == ["m2"]


def test_only_a_later_group_record_replaces_a_classic_group_with_members() -> None:
    whole = classic(50, [classic_member("m9")])
    assert rows_of(whole, consumer_member(51, "m1")).group["group_type"] == "Classic"
    converted = rows_of(whole, consumer_member(51, "m1"), cell(3, 52, {"epoch": 4}))
    assert (converted.group["group_type"], converted.group["group_epoch"]) == ("Consumer", 4)


def test_the_later_group_record_of_two_newer_types_wins() -> None:
    share = cell(11, 40, {"epoch": 2, "metadataHash": 0})
    assert rows_of(*consumer_group(), share).group["group_type"] == "Share"
    assert rows_of(*consumer_group(), cell(11, 3, share.value)).group["group_type"] == "Consumer"
    assert rows_of(*consumer_group(), share, consumer_member(50, "m2")).group["group_type"] == "Share"
    assert rows_of(share, consumer_member(50, "m2")).group["group_type"] == "Share"


def test_a_single_record_other_than_the_group_record_makes_a_group() -> None:
    topics = cell(16, 5, {"topics": [], "version": 1, "timestamp": 1}, regularExpression="a.*")
    assert rows_of(topics).group["group_type"] == "Consumer"
    state = cell(15, 5, {"initializingTopics": [], "initializedTopics": [], "deletingTopics": []})
    assert rows_of(state).group["group_type"] == "Share"


def test_records_without_a_meaning_make_no_group() -> None:
    removed_type = Cell(9, {"groupId": GROUP}, 0, {"topics": []}, 5, None)
    assert derive_group([removed_type], group_id=GROUP, exists=False) is None
    offsets_only = derive_group([removed_type], group_id=GROUP, exists=True)
    assert offsets_only is not None
    assert offsets_only.group["is_simple"] is True
