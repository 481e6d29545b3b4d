"""Log end offsets and lag, which need a cluster and so come into the rows from outside."""

from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetstream.cli.describe import OFFSETS, block, offset_columns, offset_rows, partitions_of, topic_partitions
from offsetstream.cli.group_state import Group, GroupBatch, GroupRows


def make_group(committed: int, owners: dict[str, list[int]] | None = None) -> Group:
    row = {"group_id": "g", "group_type": "Classic", "offsets_partition": 0, "in_coordinator_partition": True}
    group = Group(row)
    group.offsets = [{"topic": "t", "partition": 0, "committed_offset": committed, "leader_epoch": None}]
    for member_id, partitions in (owners or {}).items():
        group.members.append({"member_id": member_id, "client_host": "/h", "client_id": "c"})
        group.assignments += [
            {"member_id": member_id, "kind": "assigned", "topic": "t", "partition": p, "subtopology_id": None}
            for p in partitions
        ]
    return group


@pytest.mark.parametrize(
    ("committed", "ends", "told"),
    [
        (100, {("t", 0): 250}, (100, 150, None)),
        (300, {("t", 0): 250}, (300, -50, "beyond the end of the log")),
        (250, {("t", 0): 250}, (250, 0, None)),
        (-1, {("t", 0): 250}, (None, None, "no offset: -1 was committed")),
        (-2, {("t", 0): 250}, (None, None, "no offset: -2 was committed")),
        (100, {}, (100, None, None)),
    ],
    ids=["behind", "beyond the end", "at the end", "minus one", "minus two", "end unknown"],
)
def test_lag(
    committed: int, ends: dict[tuple[str, int], int | str], told: tuple[int | None, int | None, str | None]
) -> None:
    (row,) = offset_rows(make_group(committed), ends, clamped=False)
    assert (row["current_offset"], row["lag"], row["note"]) == told
    assert row["log_end_offset"] == ends.get(("t", 0))


def test_an_unknown_end_offset_is_explained() -> None:
    (row,) = offset_rows(make_group(100), {("t", 0): "LEADER_NOT_AVAILABLE"})
    told = (row["current_offset"], row["log_end_offset"], row["lag"], row["note"])
    assert told == (100, None, None, "no end: LEADER_NOT_AVAILABLE")


def test_an_owned_partition_without_a_commit_has_an_end_but_no_lag() -> None:
    rows = offset_rows(make_group(5, {"m": [1]}), {("t", 0): 9, ("t", 1): 7})
    assert [(row["partition"], row["log_end_offset"], row["lag"], row["consumer_id"]) for row in rows] == [
        (1, 7, None, "m"),
        (0, 9, 4, None),
    ]


def test_overlapping_owners_each_have_their_row() -> None:
    rows = offset_rows(make_group(5, {"m1": [0], "m2": [0, 1]}), {})
    assert [(row["consumer_id"], row["partition"]) for row in rows] == [("m2", 0), ("m2", 1), ("m1", 0)]


def test_topic_partitions_are_those_of_offsets_and_assignments() -> None:
    assert partitions_of([make_group(5, {"m": [1, 2]})]) == {("t", 0), ("t", 1), ("t", 2)}


def test_a_block_has_no_empty_optional_columns() -> None:
    rows: list[dict[str, Any]] = [{"group": "g", "leader_epoch": 3}]
    assert "leader_epoch" not in [column.name for column in block(OFFSETS, rows, verbose=False).columns]
    assert "leader_epoch" in [column.name for column in block(OFFSETS, rows, verbose=True).columns]


TOPICS, NUMBERS = st.sampled_from("tuv"), st.integers(0, 3)
PLACES = st.tuples(TOPICS, NUMBERS)
ENDS = st.dictionaries(PLACES, st.integers(0, 20) | st.just("LEADER_NOT_AVAILABLE"))


@st.composite
def some_groups(draw: st.DrawFn) -> list[Group]:
    """Copies of groups, in their order, of which some have members, and some commits."""
    found = []
    for group_id in sorted(draw(st.sets(st.sampled_from("abcdef")))):
        at_home = draw(st.integers(0, 2))
        for number in sorted(draw(st.sets(st.integers(0, 2), min_size=1)), key=lambda number: number != at_home):
            place = {"group_id": group_id, "offsets_partition": number}
            facts = {"group_type": draw(st.sampled_from(["Classic", "Consumer"]))}
            group = Group({**place, **facts, "in_coordinator_partition": number == at_home}, number == at_home)
            for topic, partition in sorted(draw(st.sets(PLACES))):
                commit = {"committed_offset": draw(st.integers(-2, 20)), "leader_epoch": draw(st.none() | NUMBERS)}
                group.offsets.append({**place, "topic": topic, "partition": partition, **commit})
            for member_id in sorted(draw(st.sets(st.sampled_from(["m1", "m2"])))):
                group.members.append({**place, "member_id": member_id, "client_host": "/h", "client_id": "c"})
                group.assignments += [
                    {**place, "member_id": member_id, "kind": kind, "topic": topic, "partition": partition}
                    | {"subtopology_id": None}
                    for kind in ("assigned", "target")
                    for topic, partition in sorted(draw(st.sets(PLACES)))
                ]
            found.append(group)
    return found


def by_column(rows: list[dict[str, Any]], *names: str) -> GroupRows:
    every = ("group_id", "offsets_partition", *names)
    return GroupRows({name: [row[name] for row in rows] for name in every})


@given(some_groups(), ENDS, st.booleans())
def test_offsets_by_column_equal_offsets_by_row(
    groups: list[Group], ends: dict[tuple[str, int], int | str], clamped: bool
) -> None:
    some = GroupBatch(
        by_column([group.row for group in groups], "group_type", "in_coordinator_partition"),
        by_column(list(chain(*(group.members for group in groups))), "member_id", "client_host", "client_id"),
        by_column(
            list(chain(*(group.assignments for group in groups))),
            *("member_id", "kind", "topic", "partition", "subtopology_id"),
        ),
        by_column(
            list(chain(*(group.offsets for group in groups))),
            *("topic", "partition", "committed_offset", "leader_epoch"),
        ),
    )
    assert topic_partitions(some) == partitions_of(groups)
    for as_text in (False, True):
        rows = [
            offset_rows(group, ends, clamped=clamped) if is_current or not as_text else []
            for group, is_current in zip(groups, some.are_current, strict=True)
        ]
        columns, sizes = offset_columns(some, ends, clamped=clamped, as_text=as_text)
        assert sizes == [*map(len, rows)]
        left_out = {"offsets_partition", "in_coordinator_partition", "type"} if as_text else set()
        assert [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)] == [
            {name: value for name, value in row.items() if name not in left_out} for row in chain(*rows)
        ]
