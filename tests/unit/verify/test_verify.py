"""What counts as a difference, what explains one, and what settles."""

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
from offsetstream.verify import settle
from offsetstream.verify.answers import Answers
from offsetstream.verify.compare import KEYS, differences, groups_not_compared
from offsetstream.verify.difference import ROW, ROWS, Difference
from offsetstream.verify.explain import Explanations
from offsetstream.verify.settle import compare_until_settled
from offsetstream.verify.table_lag import TablePosition
from offsetstream.verify.tables import TableRows, read_tables
from testkit.tables import new_tables

OWNED = {"load_state": "OWNED", "coordinator_id": 1, "next_offset": 9}
PLACE = {"group_id": "g", "topic": "t", "partition": 0}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle, "_PAUSE_SECONDS", 0.01)


def answers(offset: int = 5, **group: Any) -> Answers:
    listed = {"group_id": "g", "group_type": "Classic", "state": "Empty", "coordinator_id": 1, "member_count": 0}
    committed = {**PLACE, "committed_offset": offset, "leader_epoch": None, "metadata": ""}
    return Answers(groups=[listed | group], offsets=[committed])


def tables(offset: int = 5, metadata: str = "", **partition: Any) -> TableRows:
    group = {"group_id": "g", "group_type": "Classic", "state": "Empty", "protocol_type": None, "member_count": 0}
    committed = {**PLACE, "committed_offset": offset, "leader_epoch": None, "metadata": metadata}
    rows: dict[str, list[dict[str, Any]]] = {"groups": [group], "committed_offsets": [committed]}
    rows |= {"group_members": [], "member_assignments": []}
    return TableRows(rows, {0: OWNED | partition}, frozenset())


def standing(applied: int = 9, stable: int = 9, high: int = 9, *, has_job: bool = True) -> TablePosition:
    return TablePosition({0: applied}, {0: PartitionEnds(0, stable, high, 1, 1, datetime.now(UTC))}, has_job)


def settled(held: Any, told: Any, stands: Iterable[TablePosition], seconds: float = 0.05) -> list[str | None]:
    """What the differences that are left are explained by; the last standing stays."""
    *moving, last = stands
    seen = chain(moving, repeat(last))
    return [found.explanation for found in compare_until_settled(held, told, lambda _: next(seen), seconds).found]


@pytest.mark.parametrize("in_tables", ["", "g\0h"])
def test_group_ids_that_librdkafka_cannot_say_are_not_compared(in_tables: str) -> None:
    held = tables()
    for row in held.rows["groups"] + held.rows["committed_offsets"]:
        row["group_id"] = in_tables
    told = answers()  # of "g", which may be what is left of "g\0h"
    assert differences(held, told) != []
    told.cuts_group_ids = True
    expected = {"g", "g\0h"} if in_tables else {""}
    assert groups_not_compared(held, told) == expected
    assert {found.group_id for found in differences(held, told)} == {"g"} - expected


def test_equal_rows() -> None:
    assert differences(tables(), answers()) == []


def test_a_value_and_a_row() -> None:
    (found,) = differences(tables(offset=4), answers())
    assert found == Difference("committed_offsets", KEYS["committed_offsets"], ("g", "t", 0), "committed_offset", 4, 5)
    assert str(found) == (
        "committed_offsets: group_id 'g', topic 't', partition 0: committed_offset is 4 in the tables, 5 in the cluster"
    )
    without = tables()
    without.rows["committed_offsets"] = []
    (found,) = differences(without, answers())
    assert (found.column, str(found).rpartition(": ")[2]) == (ROW, "only in the cluster")


def test_offsets_without_a_group_are_asked_of_nobody() -> None:
    only_offsets = tables()
    only_offsets.rows["groups"] = []
    assert differences(only_offsets, Answers()) == []


def test_a_committed_offset_below_zero_is_told_by_no_client() -> None:
    told = answers()
    told.offsets.clear()
    assert differences(tables(offset=-1), told) == []


def test_a_key_that_is_there_twice() -> None:
    held = tables()
    held.rows["committed_offsets"] *= 2
    (found,) = differences(held, answers())
    assert Explanations(held, answers(state="PreparingRebalance"), standing()).of(found) is None
    assert (found.column, found.in_tables, found.other) == (ROWS, 2, 1)
    assert str(found).endswith("partition 0: rows is 2 in the tables, 1 in the cluster")


@pytest.mark.parametrize(
    ("held", "told", "stands", "why"),
    [
        (tables(4, load_state="LOADING"), answers(), standing(0), "not loaded yet"),
        (tables(4, load_state="LOADING"), answers(), standing(0, has_job=False), None),
        (tables(4), answers(), standing(3, 3, 9), "open transaction"),
        (tables(4), answers(), standing(3, 3, 9, has_job=False), "open transaction"),
        (tables(4), answers(), standing(2, 3, 9), None),
        (tables(), answers(member_count=1, state="PreparingRebalance"), standing(), "in the log only when it ends"),
        (tables(4), answers(4, state="PreparingRebalance"), standing(), "in the log only when it ends"),
        (tables(4), answers(), standing(), None),
    ],
)
def test_what_the_reference_explains(held: TableRows, told: Answers, stands: TablePosition, why: str | None) -> None:
    found = [Explanations(held, told, stands).of(each) for each in differences(held, told)]
    assert found
    assert all((each is None) if why is None else (why in str(each)) for each in found)


def test_a_rebalance_explains_no_offset() -> None:
    held, told = tables(4), answers(state="PreparingRebalance")
    found = {each.table: Explanations(held, told, standing()).of(each) for each in differences(held, told)}
    assert found["committed_offsets"] is None


def test_a_text_that_librdkafka_cut() -> None:
    told = answers()
    told.offsets[0]["metadata"] = "read"
    held = tables(metadata="read\0by")
    assert [Explanations(held, told, standing()).of(each) for each in differences(held, told)] == [
        "librdkafka truncates text at the first NUL"
    ]


def test_a_group_that_only_its_coordinator_remembers() -> None:
    nothing = TableRows(deepcopy(tables().rows), {0: OWNED}, frozenset())
    for rows in nothing.rows.values():
        rows.clear()
    told = Answers(groups=answers().groups)
    (found,) = differences(nothing, told)
    assert "only the coordinator knows a group" in str(Explanations(nothing, told, standing()).of(found))


@pytest.mark.parametrize(("validated", "is_explained"), [({}, True), ({"validatedTopologyEpoch": 1}, False)])
def test_what_a_streams_group_of_4_1_does_not_write(
    tmp_path: Path, validated: dict[str, int], is_explained: bool
) -> None:
    """Whether its topics are there; a release that writes it is believed."""
    place = {"offsets_partition": 0, "group_id": "g", "in_coordinator_partition": True}
    value = json.dumps({"version": 0, "data": {"epoch": 3, "metadataHash": 1} | validated})
    rows = {
        "offsets_partitions": [OWNED | {"offsets_partition": 0}],
        "groups": [place | {"group_type": "Streams", "state": "NotReady"}],
        "group_cells": [place | {"key_type": 17, "value_json": value}, place | {"key_type": 23, "value_json": value}],
    }
    held, told = read_tables(Lookup(new_tables(tmp_path, rows))), answers(group_type="Streams", state="Stable")
    (found,) = [each for each in differences(held, told) if each.column == "state"]
    why = Explanations(held, told, standing()).of(found)
    assert (why is not None and why.startswith("Kafka 4.1 does not write ")) is is_explained


def test_what_arrives_later_is_no_difference() -> None:
    seen = iter([tables(3), tables(4), tables(5)])
    assert settled(lambda: next(seen), answers, [standing(7), standing(8), standing(9)], 30) == []


def later() -> Iterator[Answers]:
    yield from (answers(offset) for offset in count(11))


MOVES = [standing(5, 9, 9), standing(9, 12, 12)]


@pytest.mark.parametrize(
    ("stands", "is_explained"),
    [
        (MOVES, True),
        ([replace(each, has_job=False) for each in MOVES], False),  # nobody will apply it
        ([standing(5, 9, 9), standing(5, 12, 12)], False),  # the job stands still
        ([standing(9, 9, 9), standing(9, 9, 9)], False),  # there is nothing to apply
        ([standing(9, 9, 9), standing(9, 12, 12)], True),  # it came a moment ago
    ],
)
def test_what_moves_is_explained_by_a_job_that_moves(stands: list[TablePosition], is_explained: bool) -> None:
    moving = later()
    (found,) = settled(lambda: tables(4), lambda: next(moving), stands)
    assert found == (
        "the job is still applying records: the group's offsets partition is behind by 3 offsets"
        if is_explained
        else None
    )


@pytest.mark.parametrize(
    ("stands", "unchanged_partitions"),
    [([standing(5, 9, 9), standing(5, 12, 12)], [0]), (MOVES, []), ([standing(5, 9, 9, has_job=False)], [])],
)
def test_a_job_that_stands_still_is_told_of(stands: list[TablePosition], unchanged_partitions: list[int]) -> None:
    *moving, last = stands
    seen = chain(moving, repeat(last))
    found = compare_until_settled(lambda: tables(4), answers, lambda _: next(seen), 0.05)
    assert ([each.explanation for each in found.found], found.unchanged_partitions) == ([None], unchanged_partitions)


def test_what_stays_is_a_difference_once_the_job_went_past_it() -> None:
    assert settled(lambda: tables(4), answers, MOVES) == [None]
    slow = [standing(5, 9, 9), standing(6, 12, 12)]
    assert settled(lambda: tables(4), answers, slow) != [None]


def test_a_first_look_that_takes_long_is_followed_by_another() -> None:
    seen = count(1)

    def held() -> TableRows:
        time.sleep(0.1)  # longer than all is to take
        return tables(offset=next(seen))

    moving = [standing(applied, applied + 1, applied + 1) for applied in range(20)]
    (found,) = settled(held, lambda: answers(offset=100), moving, seconds=0.05)
    assert found is not None


def test_one_look_tells_nothing_of_what_moves() -> None:
    assert settled(lambda: tables(4), answers, [standing(5, 9, 9)], 0) == [None]


def test_types_that_the_client_cannot_see_are_not_compared() -> None:
    held = tables()
    held.rows["groups"].append({**held.rows["groups"][0], "group_id": "shared", "group_type": "Share"})
    told = answers()
    told.invisible_types = ("Share",)
    result = compare_until_settled(lambda: held, lambda: told, lambda _: standing(), 0)
    assert (result.found, result.groups_not_compared) == ([], ["shared"])


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
def test_groups_that_differ_are_the_exit_code_where_all_offsets_are_equal(told: Answers, exit_code: int) -> None:
    assert exit_code_of(compare_until_settled(tables, lambda: told, lambda _: standing(), 0)) == exit_code


def test_a_group_that_went_while_it_was_asked_for_is_looked_at_again() -> None:
    told = iter([Answers(gone={"g"}), Answers()])
    empty = tables()
    for rows in empty.rows.values():
        rows.clear()
    held = iter([tables(), empty])
    assert settled(lambda: next(held), lambda: next(told), [standing()], 30) == []
    assert settled(tables, lambda: Answers(gone={"g"}), [standing()]) == []
    assert settled(tables, Answers, [standing()]) == [None]
