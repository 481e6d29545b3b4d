"""Log end offsets and lag, which need a cluster and so come into the rows from outside."""

from typing import Any

import pytest

from offsetstream.cli.describe import OFFSETS, block, offset_rows, topic_partitions
from offsetstream.cli.group_state import Group


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
    ("committed", "ends", "lag"),
    [
        (100, {("t", 0): 250}, 150),
        (300, {("t", 0): 250}, -50),
        (250, {("t", 0): 250}, 0),
        (-1, {("t", 0): 250}, None),
        (100, {}, None),
    ],
    ids=["behind", "beyond the end", "at the end", "no offset", "end unknown"],
)
def test_lag(committed: int, ends: dict[tuple[str, int], int], lag: int | None) -> None:
    rows = offset_rows(make_group(committed), ends, clamped=False)
    assert [(row["current_offset"], row["log_end_offset"], row["lag"]) for row in rows] == [
        (committed, ends.get(("t", 0)), lag)
    ]


def test_an_owned_partition_without_a_commit_has_an_end_but_no_lag() -> None:
    rows = offset_rows(make_group(5, {"m": [1]}), {("t", 0): 9, ("t", 1): 7})
    assert [(row["partition"], row["log_end_offset"], row["lag"], row["consumer_id"]) for row in rows] == [
        (1, 7, None, "m"),
        (0, 9, 4, None),
    ]


def test_overlapping_owners_each_have_their_row() -> None:
    rows = offset_rows(make_group(5, {"m1": [0], "m2": [0, 1]}), {})
    assert [(row["consumer_id"], row["partition"]) for row in rows] == [("m2", 0), ("m2", 1), ("m1", 0)]


def test_the_partitions_to_ask_for() -> None:
    assert topic_partitions([make_group(5, {"m": [1, 2]})]) == {("t", 0), ("t", 1), ("t", 2)}


def test_a_block_leaves_out_what_no_row_has() -> None:
    rows: list[dict[str, Any]] = [{"group": "g", "leader_epoch": 3}]
    assert "leader_epoch" not in [column.name for column in block(OFFSETS, rows, verbose=False).columns]
    assert "leader_epoch" in [column.name for column in block(OFFSETS, rows, verbose=True).columns]
