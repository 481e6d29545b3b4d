"""Which differences count, which are explained, and which settle."""

import json
import time
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any

import pytest

from offsetstream.cli.verify import exit_code_of
from offsetstream.cluster.answers import PartitionEnds
from offsetstream.tables.lookup import Lookup
from offsetstream.verify import compare
from offsetstream.verify.compare import (
    KEYS,
    Explanations,
    TablePosition,
    compare_until_settled,
    differences,
)
from offsetstream.verify.difference import ROW, ROWS, Difference
from offsetstream.verify.sources import Answers, TableRows, read_tables
from testkit.tables import new_tables

OWNED = {"load_state": "OWNED", "coordinator_id": 1, "next_offset": 9}
PLACE = {"group_id": "g", "topic": "t", "partition": 0}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "_PAUSE_SECONDS", 0.01)


def answers(offset: int = 5, **group: Any) -> Answers:
    listed = {"group_id": "g", "group_type": "Classic", "state": "Empty", "coordinator_id": 1, "member_count": 0}
    committed = {**PLACE, "committed_offset": offset, "leader_epoch": None, "metadata": ""}
    return Answers(groups=[listed | group], offsets=[committed])


def tables(offset: int = 5, **partition: Any) -> TableRows:
    group = {"group_id": "g", "group_type": "Classic", "state": "Empty", "protocol_type": None, "member_count": 0}
    committed = {**PLACE, "committed_offset": offset, "leader_epoch": None, "metadata": ""}
    rows: dict[str, list[dict[str, Any]]] = {"groups": [group], "committed_offsets": [committed]}
    rows |= {"group_members": [], "member_assignments": []}
    return TableRows(rows, {0: OWNED | partition}, frozenset())


def position(applied: int = 9, stable: int = 9, high: int = 9, *, has_job: bool = True) -> TablePosition:
    return TablePosition({0: applied}, {0: PartitionEnds(0, stable, high, 1, 1, datetime.now(UTC))}, has_job)


def explanations(held: Any, told: Any, stands: Iterable[TablePosition], seconds: float = 0.05) -> list[str | None]:
    """Return the explanations of the remaining differences; the last position repeats."""
    *moving, last = stands
    seen = chain(moving, repeat(last))
    return [found.explanation for found in compare_until_settled(held, told, lambda _: next(seen), seconds).found]


def test_equal_rows_are_no_difference() -> None:
    assert differences(tables(), answers()) == []


def test_a_different_value_and_a_missing_row_are_found() -> None:
    (found,) = differences(tables(offset=4), answers())
    assert found == Difference("committed_offsets", KEYS["committed_offsets"], ("g", "t", 0), "committed_offset", 4, 5)
    assert str(found) == (
        "committed_offsets: group_id 'g', topic 't', partition 0: committed_offset is 4 in the tables, 5 in the cluster"
    )
    without = tables()
    without.rows["committed_offsets"] = []
    (found,) = differences(without, answers())
    assert (found.column, str(found).rpartition(": ")[2]) == (ROW, "only in the cluster")


def test_offsets_without_a_group_are_requested_from_no_coordinator() -> None:
    only_offsets = tables()
    only_offsets.rows["groups"] = []
    assert differences(only_offsets, Answers()) == []


def test_committed_offsets_below_zero_are_not_compared() -> None:
    told = answers()
    told.offsets.clear()
    assert differences(tables(offset=-1), told) == []


def test_a_doubled_key_is_found() -> None:
    held = tables()
    held.rows["committed_offsets"] *= 2
    (found,) = differences(held, answers())
    assert Explanations(held, answers(state="PreparingRebalance"), position()).of(found) is None
    assert (found.column, found.in_tables, found.other) == (ROWS, 2, 1)
    assert str(found).endswith("partition 0: rows is 2 in the tables, 1 in the cluster")


@pytest.mark.parametrize(
    ("held", "told", "stands", "why"),
    [
        (tables(4, load_state="LOADING"), answers(), position(0), "not loaded yet"),
        (tables(4, load_state="LOADING"), answers(), position(0, has_job=False), None),
        (tables(4), answers(), position(3, 3, 9), "open transaction"),
        (tables(4), answers(), position(3, 3, 9, has_job=False), "open transaction"),
        (tables(4), answers(), position(2, 3, 9), None),
        (tables(), answers(member_count=1, state="PreparingRebalance"), position(), "in the log only when it ends"),
        (tables(4), answers(4, state="PreparingRebalance"), position(), "in the log only when it ends"),
        (tables(4), answers(), position(), None),
    ],
)
def test_known_deviations_are_explained(held: TableRows, told: Answers, stands: TablePosition, why: str | None) -> None:
    found = [Explanations(held, told, stands).of(each) for each in differences(held, told)]
    assert found
    assert all((each is None) if why is None else (why in str(each)) for each in found)


def test_a_rebalance_does_not_explain_a_different_offset() -> None:
    held, told = tables(4), answers(state="PreparingRebalance")
    found = {each.table: Explanations(held, told, position()).of(each) for each in differences(held, told)}
    assert found["committed_offsets"] is None


def test_a_group_in_coordinator_memory_only_is_explained() -> None:
    nothing = TableRows(deepcopy(tables().rows), {0: OWNED}, frozenset())
    for rows in nothing.rows.values():
        rows.clear()
    told = Answers(groups=answers().groups)
    (found,) = differences(nothing, told)
    assert "only the coordinator knows a group" in str(Explanations(nothing, told, position()).of(found))


@pytest.mark.parametrize(("validated", "is_explained"), [({}, True), ({"validatedTopologyEpoch": 1}, False)])
def test_streams_group_state_that_4_1_does_not_write_is_explained(
    tmp_path: Path, validated: dict[str, int], is_explained: bool
) -> None:
    """Whether its topics exist. A release that writes this is believed."""
    place = {"offsets_partition": 0, "group_id": "g", "in_coordinator_partition": True}
    value = json.dumps({"version": 0, "data": {"epoch": 3, "metadataHash": 1} | validated})
    rows = {
        "offsets_partitions": [OWNED | {"offsets_partition": 0}],
        "groups": [place | {"group_type": "Streams", "state": "NotReady"}],
        "group_cells": [place | {"key_type": 17, "value_json": value}, place | {"key_type": 23, "value_json": value}],
    }
    held, told = read_tables(Lookup(new_tables(tmp_path, rows))), answers(group_type="Streams", state="Stable")
    (found,) = [each for each in differences(held, told) if each.column == "state"]
    why = Explanations(held, told, position()).of(found)
    assert (why is not None and why.startswith("Kafka 4.1 does not write ")) is is_explained


def test_rows_that_arrive_later_are_no_difference() -> None:
    seen = iter([tables(3), tables(4), tables(5)])
    assert explanations(lambda: next(seen), answers, [position(7), position(8), position(9)], 30) == []


def later() -> Iterator[Answers]:
    yield from (answers(offset) for offset in count(11))


MOVES = [position(5, 9, 9), position(9, 12, 12)]


@pytest.mark.parametrize(
    ("stands", "is_explained"),
    [
        (MOVES, True),
        ([replace(each, has_job=False) for each in MOVES], False),  # no job will apply it
        ([position(5, 9, 9), position(5, 12, 12)], False),  # the job makes no progress
        ([position(9, 9, 9), position(9, 9, 9)], False),  # there is nothing to apply
        ([position(9, 9, 9), position(9, 12, 12)], True),  # it arrived a moment ago
    ],
)
def test_a_moving_difference_is_explained_by_a_moving_job(stands: list[TablePosition], is_explained: bool) -> None:
    moving = later()
    (found,) = explanations(lambda: tables(4), lambda: next(moving), stands)
    assert found == (
        "the job is still applying records: the group's offsets partition is behind by 3 offsets"
        if is_explained
        else None
    )


@pytest.mark.parametrize(
    ("stands", "unchanged_partitions"),
    [([position(5, 9, 9), position(5, 12, 12)], [0]), (MOVES, []), ([position(5, 9, 9, has_job=False)], [])],
)
def test_a_job_without_progress_is_reported(stands: list[TablePosition], unchanged_partitions: list[int]) -> None:
    *moving, last = stands
    seen = chain(moving, repeat(last))
    found = compare_until_settled(lambda: tables(4), answers, lambda _: next(seen), 0.05)
    assert ([each.explanation for each in found.found], found.unchanged_partitions) == ([None], unchanged_partitions)


def test_a_difference_counts_once_the_job_has_passed_it() -> None:
    assert explanations(lambda: tables(4), answers, MOVES) == [None]
    slow = [position(5, 9, 9), position(6, 12, 12)]
    assert explanations(lambda: tables(4), answers, slow) != [None]


def test_a_slow_first_comparison_is_repeated() -> None:
    seen = count(1)

    def held() -> TableRows:
        time.sleep(0.1)  # longer than the limit
        return tables(offset=next(seen))

    moving = [position(applied, applied + 1, applied + 1) for applied in range(20)]
    (found,) = explanations(held, lambda: answers(offset=100), moving, seconds=0.05)
    assert found is not None


def test_one_comparison_does_not_settle_a_moving_difference() -> None:
    assert explanations(lambda: tables(4), answers, [position(5, 9, 9)], 0) == [None]


@pytest.mark.parametrize(
    ("told", "exit_code"),
    [
        (answers(), 0),
        (answers(group_type="Consumer"), 1),
        (answers(state="Stable", member_count=1), 1),
        (answers(state="PreparingRebalance", member_count=1), 0),  # explained
        (replace(answers(state="Stable"), unreadable={"g": "unknown version"}), 3),
        (replace(answers(state="Stable"), unreadable={"h": "unknown version"}), 1),
        (Answers(), 1),
    ],
)
def test_different_groups_set_the_exit_code_even_with_equal_offsets(told: Answers, exit_code: int) -> None:
    assert exit_code_of(compare_until_settled(tables, lambda: told, lambda _: position(), 0)) == exit_code


def test_a_group_that_vanished_during_the_query_is_checked_again() -> None:
    told = iter([Answers(gone={"g"}), Answers()])
    empty = tables()
    for rows in empty.rows.values():
        rows.clear()
    held = iter([tables(), empty])
    assert explanations(lambda: next(held), lambda: next(told), [position()], 30) == []
    assert explanations(tables, lambda: Answers(gone={"g"}), [position()]) == []
    assert explanations(tables, Answers, [position()]) == [None]
