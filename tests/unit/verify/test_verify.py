"""What counts as a difference, what explains one, and what settles."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from offsetstream.verify import settle
from offsetstream.verify.answers import Answers
from offsetstream.verify.compare import KEYS, differences
from offsetstream.verify.difference import ROW, Difference
from offsetstream.verify.explain import Explanations
from offsetstream.verify.settle import compare_until_settled
from offsetstream.verify.tables import TableRows

OWNED = {"load_state": "OWNED", "coordinator_id": 1, "last_stable_offset": 9, "high_watermark": 9}
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


@pytest.mark.parametrize(
    ("held", "told", "why"),
    [
        (tables(4, load_state="LOADING"), answers(), "not loaded yet"),
        (tables(4, last_stable_offset=3), answers(), "open transaction"),
        (tables(), answers(state="PreparingRebalance"), "not in the log"),
        (tables(metadata="read\0by"), answers(), None),
        (tables(4), answers(), None),
    ],
)
def test_what_the_reference_explains(held: TableRows, told: Answers, why: str | None) -> None:
    found = [Explanations(held, told).of(each) for each in differences(held, told)]
    assert len(found) == 1
    assert (found[0] is None) if why is None else (why in str(found[0]))


def test_a_text_that_librdkafka_cut() -> None:
    told = answers()
    told.offsets[0]["metadata"] = "read"
    held = tables(metadata="read\0by")
    assert [Explanations(held, told).of(each) for each in differences(held, told)] == [
        "librdkafka ends a text at its first NUL"
    ]


def test_a_group_that_only_its_coordinator_remembers() -> None:
    nothing = TableRows(deepcopy(tables().rows), {0: OWNED}, frozenset())
    for rows in nothing.rows.values():
        rows.clear()
    told = Answers(groups=answers().groups)
    (found,) = differences(nothing, told)
    assert "remembered by its coordinator only" in str(Explanations(nothing, told).of(found))


def test_what_arrives_later_is_no_difference() -> None:
    seen = iter([tables(3), tables(4), tables(5)])
    result = compare_until_settled(lambda: next(seen), answers, 30)
    assert result.found == []


def test_what_stays_is_a_difference_and_what_moves_is_explained() -> None:
    assert [found.explanation for found in compare_until_settled(lambda: tables(4), answers, 0.05).found] == [None]

    def later() -> Iterator[Answers]:
        offset = 10
        while True:
            offset += 1
            yield answers(offset)

    moving = later()
    result = compare_until_settled(lambda: tables(4), lambda: next(moving), 0.05)
    assert [found.explanation for found in result.found] == ["it changed while it was compared"]


def test_types_that_the_client_cannot_see_are_not_compared() -> None:
    held = tables()
    held.rows["groups"].append({**held.rows["groups"][0], "group_id": "shared", "group_type": "Share"})
    told = answers()
    told.unseen_types = ("Share",)
    result = compare_until_settled(lambda: held, lambda: told, 0)
    assert (result.found, result.groups_not_compared) == ([], ["shared"])
