"""Groups are derived one by one, and the memory of each is freed before the next."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable

import pyarrow as pa
import pytest

from offsetstream.coordinator.rows import Cell
from offsetstream.stream.state.rules import GroupKey, derived_tables, offsets_only_groups
from offsetstream.tables import row_pieces
from offsetstream.tables.derived import rows_of_group
from offsetstream.tables.names import DERIVED_TABLES
from offsetstream.tables.plain_rows import Rows, from_rows
from offsetstream.tables.schema import load_schema
from tests.unit.coordinator.cells import classic, classic_member

COLUMNS = ("offsets_partition", "group_id", "key_type", "key_json", "value_version", "value_json", "record_offset")
_FACTS = pa.schema(
    [
        ("offsets_partition", pa.int32()),
        ("log_id", pa.int64()),
        ("in_coordinator_partition", pa.bool_()),
        ("group_id", pa.string()),
        ("is_touched", pa.bool_()),
    ]
)
GROUPS = [(number % 3, f"group-{number:02}") for number in range(30)]


def group_cells(groups: Iterable[GroupKey]) -> pa.Table:
    """Rows of `group_cells`: classic groups with three members each."""
    rows = []
    for offset, (partition, group_id) in enumerate(groups):
        cell = classic(offset, [classic_member(f"{group_id}-m{number}") for number in range(3)])
        key = json.dumps({"type": 2, "data": {"group": group_id}})
        value = json.dumps({"version": 3, "data": {**cell.value}})
        rows.append(dict(zip(COLUMNS, (partition, group_id, 2, key, 3, value, offset), strict=True)))
    arrow = load_schema("group_cells").arrow
    return pa.Table.from_pylist(rows, schema=pa.schema([arrow.field(name) for name in COLUMNS]))


def rows_of(key: GroupKey, cells: list[Cell]) -> dict[str, Rows] | None:
    place = {"offsets_partition": key[0], "log_id": 0, "in_coordinator_partition": True}
    return rows_of_group(cells, key[1], {}, exists=True, place=place)


def test_each_group_is_derived_once_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_pieces, "ROWS_AT_ONCE", 20)
    monkeypatch.setattr(row_pieces, "_RECORDS_AT_ONCE", 4)
    found = derived_tables(group_cells(reversed(GROUPS)), rows_of)
    counts = {name: found[name].num_rows for name in DERIVED_TABLES}
    assert counts == {"groups": 30, "group_members": 90, "member_assignments": 180, "member_subscriptions": 0}
    assert {(row["offsets_partition"], row["group_id"]) for row in found["groups"].to_pylist()} == {*GROUPS}
    members = {(row["group_id"], row["member_id"]) for row in found["group_members"].to_pylist()}
    assert members == {(group_id, f"{group_id}-m{number}") for _, group_id in GROUPS for number in range(3)}
    for name in DERIVED_TABLES:
        assert found[name].schema == load_schema(name).arrow


@pytest.mark.parametrize("groups", [[], GROUPS])
def test_groups_without_cells_equal_groups_derived_one_by_one(groups: list[GroupKey]) -> None:
    places = [
        {"offsets_partition": partition, "log_id": 7, "in_coordinator_partition": partition != 1}
        for partition, _ in groups
    ]
    facts = [{**place, "group_id": key[1], "is_touched": True} for place, key in zip(places, groups, strict=True)]
    found = offsets_only_groups(pa.Table.from_pylist(facts, schema=_FACTS))
    one_by_one = [
        row
        for place, (_, group_id) in zip(places, groups, strict=True)
        for row in (rows_of_group([], group_id, {}, exists=True, place=place) or {})["groups"]
    ]
    assert found.equals(from_rows(one_by_one, load_schema("groups")))
    assert found.schema == load_schema("groups").arrow


def test_without_groups_there_are_no_rows() -> None:
    found = derived_tables(group_cells([]), rows_of)
    assert {name: found[name].num_rows for name in DERIVED_TABLES} == dict.fromkeys(DERIVED_TABLES, 0)


def test_only_one_group_of_cells_is_in_memory() -> None:
    alive = list[int]()

    def derive_counting(key: GroupKey, cells: list[Cell]) -> dict[str, Rows] | None:
        alive.append(sum(isinstance(each, Cell) for each in gc.get_objects()))
        return rows_of(key, cells)

    before = sum(isinstance(each, Cell) for each in gc.get_objects())
    derived_tables(group_cells(GROUPS), derive_counting)
    assert max(alive) - before <= 2
