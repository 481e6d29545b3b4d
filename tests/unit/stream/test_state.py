"""The driver's state tables equal the pure functions' dictionaries, batch by batch; groups are derived one by one."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from offsetstream.codec.batches import LogRecord
from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.coordinator.rows import Cell
from offsetstream.stream.state import GroupKey, StateTables, derived_tables, offsets_only_groups
from offsetstream.tables.names import DERIVED_TABLES
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.rows import Rows, decode_on_driver, from_rows, rows_of_group
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.transaction import BatchId
from tests.conformance.builder import classic, classic_member
from tests.conformance.case import BOTH
from tests.conformance.histories import History
from tests.conformance.pure_tables import PureTables, consumed
from tests.conformance.state_rows import snapshot
from tests.conformance.valid_histories import valid_histories
from tests.unit.coordinator.cells import classic as classic_cell
from tests.unit.coordinator.cells import classic_member as cell_member

LOGS, BATCHES = 30, 6
RAW = pa.schema(
    [
        ("offsets_partition", pa.int32()),
        *((name, pa.int64()) for name in ("record_offset", "value_offset", "tombstone_offset")),
        ("record_timestamp", pa.timestamp("us", "UTC")),
        ("in_coordinator_partition", pa.bool_()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
TABLES = ("groups", "group_members", "member_assignments", "committed_offsets")


def random_histories(coordinator: Coordinator) -> list[History]:
    """A log for each offsets partition."""
    found: list[History] = []
    lists = st.lists(valid_histories(coordinator, max_steps=30), min_size=LOGS, max_size=LOGS)

    @seed(20261128)
    @settings(max_examples=1, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(lists)
    def collect(histories: list[History]) -> None:
        found[:] = histories

    collect()
    return found


def decoded(logs: Sequence[Sequence[LogRecord]]) -> pa.Table:
    """The records of the logs as the job decodes them, one partition for each log."""
    rows = [
        {
            "offsets_partition": partition,
            "record_offset": record.offset,
            "value_offset": None if record.value is None else record.offset,
            "tombstone_offset": record.offset if record.value is None else None,
            "record_timestamp": None if record.timestamp_ms is None else record.timestamp_ms * 1000,
            "in_coordinator_partition": True,
            "key": record.key,
            "value": record.value,
        }
        for partition, log in enumerate(logs)
        for record in log
    ]
    return decode_on_driver(pa.Table.from_pylist(rows, schema=RAW))


@pytest.mark.parametrize("coordinator", BOTH)
def test_random_batches(tables: PathStore, coordinator: Coordinator) -> None:
    logs = [consumed(history.batches) for history in random_histories(coordinator)]
    state, pure = StateTables(tables, coordinator, {}, {}), [PureTables(coordinator) for _ in logs]
    for number in range(BATCHES):
        parts = [log[len(log) * number // BATCHES : len(log) * (number + 1) // BATCHES] for log in logs]
        for _ in range(2):
            state.apply(decoded(parts), BatchId(1, number))
        rows = {name: read_rows(tables.open(name)) for name in TABLES}
        for partition, (part, expected) in enumerate(zip(parts, pure, strict=True)):
            expected.apply(part)
            own = {
                name: [row for row in of_all if row["offsets_partition"] == partition] for name, of_all in rows.items()
            }
            assert snapshot(own) == expected.snapshot(), (number, partition)


def test_a_member_that_replaces_another_is_the_only_one(tables: PathStore) -> None:
    state = StateTables(tables, "new", {}, {})
    for number, member in enumerate(("first", "second")):
        record = LogRecord(number, None, *classic(classic_member(member), group="g"))
        state.apply(decoded([[record]]), BatchId(1, number))
        assert [row["member_id"] for row in read_rows(tables.open("group_members"))] == [member]


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
        cell = classic_cell(offset, [cell_member(f"{group_id}-m{number}") for number in range(3)])
        key = json.dumps({"type": 2, "data": {"group": group_id}})
        value = json.dumps({"version": 3, "data": {**cell.value}})
        rows.append(dict(zip(COLUMNS, (partition, group_id, 2, key, 3, value, offset), strict=True)))
    arrow = load_schema("group_cells").arrow
    return pa.Table.from_pylist(rows, schema=pa.schema([arrow.field(name) for name in COLUMNS]))


def rows_of(key: GroupKey, cells: list[Cell]) -> dict[str, Rows] | None:
    place = {"offsets_partition": key[0], "log_id": 0, "in_coordinator_partition": True}
    return rows_of_group(cells, key[1], {}, exists=True, place=place)


def test_each_group_is_derived_once_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offsetstream.tables.rows.ROWS_AT_ONCE", 20)
    monkeypatch.setattr("offsetstream.tables.rows._RECORDS_AT_ONCE", 4)
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
