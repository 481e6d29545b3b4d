"""Groups as the look-ups read them: one group id at a time, whatever the number of groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from offsetstream.cli.group_state import Group, read_batches
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.path_store import PathStore
from testkit.tables import append_rows, create_empty_tables
from tests.unit.cli.conftest import assigned, commit, group, member, place

GROUPS = 3000


class CountingLookup(Lookup):
    """Counts the rows of each table that were taken from it."""

    def __init__(self, location: PathStore) -> None:
        super().__init__(location)
        self.taken = Counter[str]()

    def parts(self, table: str, *arguments: Any, **options: Any) -> Iterator[dict[str, list[Any]]]:
        for part in super().parts(table, *arguments, **options):
            self.taken[table] += len(part["group_id"])
            yield part


def read(root: Path, *group_ids: str) -> list[Group]:
    some = read_batches(Lookup(PathStore(str(root))), group_ids or None, members=True, offsets=True)
    return [each for found in some for each in found.each()]


def test_a_group_is_returned_before_others_are_read(tmp_path: Path) -> None:
    ids = [f"group-{number:05}" for number in range(GROUPS)]
    append_rows(tmp_path, "groups", [group(i, "Classic", "Stable", 2) for i in reversed(ids)])
    append_rows(tmp_path, "group_members", [member(i, name) for i in ids for name in ("b", "a")])
    append_rows(tmp_path, "member_assignments", [row for i in ids for row in assigned(i, "a", 0, 1, topic="t")])
    append_rows(tmp_path, "committed_offsets", [commit(i, "t", 0, 7) for i in ids])
    lookup = CountingLookup(PathStore(str(tmp_path)))
    groups = (each for some in read_batches(lookup, None, members=True, offsets=True) for each in some.each())
    first = next(groups)
    assert first.group_id == ids[0]
    assert [row["member_id"] for row in first.members] == ["a", "b"]
    assert [row["partition"] for row in first.assignments] == [0, 1]
    assert [row["committed_offset"] for row in first.offsets] == [7]
    assert 0 < max(lookup.taken.values()) < GROUPS
    rest = list(groups)
    assert [each.group_id for each in rest] == ids[1:]
    assert {(len(each.members), len(each.assignments), len(each.offsets)) for each in rest} == {(2, 2, 1)}


@pytest.mark.parametrize("at_once", [1, 2, 3, 7])
def test_the_batch_size_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    create_empty_tables(tmp_path)
    ids = [f"group-{number}" for number in range(8)]
    copies = [place(ids[2], 7), place(ids[5], 7)]
    append_rows(tmp_path, "groups", [group(i, "Classic", "Stable", 1) for i in reversed(ids)])
    append_rows(
        tmp_path, "groups", [group(ids[number], "Classic", "Empty", 0) | copies[number > 2] for number in (2, 5)]
    )
    append_rows(tmp_path, "group_members", [member(i, name) for i in ids[1::3] for name in "cab"])
    append_rows(tmp_path, "member_assignments", [row for i in ids[4:] for row in assigned(i, "a", 0, topic="t")])
    append_rows(tmp_path, "committed_offsets", [commit(i, "t", number, 7) for i in ids[::2] for number in range(9)])
    whole = read(tmp_path)
    assert [each.group_id for each in whole] == sorted([*ids, ids[2], ids[5]])
    assert sum(len(each.offsets) for each in whole) == 36
    monkeypatch.setattr("offsetstream.tables.lookup._FETCH_ROWS", at_once)
    assert read(tmp_path) == whole


def test_rows_without_a_group_are_skipped(tmp_path: Path) -> None:
    create_empty_tables(tmp_path)
    append_rows(tmp_path, "groups", [group(i, "Classic", "Empty", 0) for i in ("b", "d", "e")])
    append_rows(tmp_path, "committed_offsets", [commit(i, "t", 0, 7) for i in ("a", "c", "d", "f")])
    assert [(each.group_id, len(each.offsets)) for each in read(tmp_path)] == [("b", 0), ("d", 1), ("e", 0)]


def test_each_copy_of_a_group_has_its_own_rows(tmp_path: Path) -> None:
    create_empty_tables(tmp_path)
    here = group("moved", "Classic", "Stable", 1)
    append_rows(tmp_path, "groups", [here | place("moved", 3), here])
    append_rows(
        tmp_path, "committed_offsets", [commit("moved", "t", 0, 1) | place("moved", 3), commit("moved", "t", 0, 2)]
    )
    found = [(each.is_current, [row["committed_offset"] for row in each.offsets]) for each in read(tmp_path, "moved")]
    assert found == [(True, [2]), (False, [1])]
