"""Which of a cluster's answers the tables' filters exclude, partition by partition."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.tables.filters import Filters
from offsetstream.verify.compare import Explanations, TablePosition, differences
from offsetstream.verify.sources import Answers, Filtered, TableRows, kept_answers

SOME = Filters(group_exclude="out", topic_exclude="views")
GROUPS = ("in", "out", "bare")


def offset(group_id: str, topic: str) -> dict[str, Any]:
    place = {"group_id": group_id, "topic": topic, "partition": 0}
    return {**place, "committed_offset": 1, "leader_epoch": None, "metadata": ""}


def told() -> Answers:
    simple = {"group_type": "Classic", "state": "Empty", "coordinator_id": 1, "member_count": 0}
    groups = [{"group_id": group_id, **simple, "protocol_type": None} for group_id in GROUPS]
    offsets = [offset("in", "orders"), offset("in", "views"), offset("out", "orders"), offset("bare", "views")]
    return Answers(groups=groups, offsets=offsets, gone={"out"})


def books(filters: Filters, partitions: int = 1) -> dict[int, dict[str, Any]]:
    row = {"load_state": "OWNED", "coordinator_id": 1, "next_offset": 9, "filters": filters.text}
    return dict.fromkeys(range(partitions), row)


def test_filtered_groups_and_offsets_are_excluded() -> None:
    kept = kept_answers(told(), books(SOME))
    assert [row["group_id"] for row in kept.groups] == ["in", "bare"]
    assert [(row["group_id"], row["topic"]) for row in kept.offsets] == [("in", "orders")]
    assert kept.gone == set()
    assert kept.filtered == Filtered({"out"}, 2, {"bare"})


def test_without_filters_the_answers_stay_unchanged() -> None:
    answers = told()
    assert kept_answers(answers, books(Filters())) is answers


def test_each_partition_has_its_own_filters() -> None:
    """While a job reloads partitions under other filters, those not yet loaded have the earlier ones."""
    partitions = books(Filters(), 7)
    homes = {group_id: partition_for(group_id, 7) for group_id in GROUPS}
    assert homes["in"] != homes["out"] != homes["bare"] != homes["in"]
    kept = kept_answers(told(), partitions | {homes["in"]: books(SOME)[0]})
    assert [row["group_id"] for row in kept.groups] == ["in", "out", "bare"]
    assert [(row["group_id"], row["topic"]) for row in kept.offsets] == [
        ("in", "orders"),
        ("out", "orders"),
        ("bare", "views"),
    ]


def test_a_filtered_row_in_the_tables_is_a_difference_but_a_bare_group_is_not() -> None:
    simple = {"group_type": "Classic", "state": "Empty", "protocol_type": None, "member_count": 0}
    held: dict[str, list[dict[str, Any]]] = {
        "groups": [{"group_id": group_id, **simple} for group_id in ("in", "out")],
        "group_members": [],
        "member_assignments": [],
        "committed_offsets": [offset("in", "orders"), offset("in", "views")],
    }
    tables = TableRows(held, books(SOME), frozenset())
    answers = kept_answers(told(), tables.partitions)
    ends = {0: PartitionEnds(0, 9, 9, 1, 1, datetime.now(UTC))}
    explanations = Explanations(tables, answers, TablePosition({0: 9}, ends, has_job=True))
    found = [(each.group_id, each.table, explanations.of(each)) for each in differences(tables, answers)]
    assert sorted(found) == [
        ("bare", "groups", "all its offsets belong to filtered topics"),
        ("in", "committed_offsets", None),
        ("out", "groups", None),
    ]
