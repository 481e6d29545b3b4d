"""The state tables compared with the records behind them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offsetstream.tables.names import DERIVED_TABLES
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import load_schema
from offsetstream.verify.difference import ROW
from offsetstream.verify.records import HISTORY, REMOVALS, disagreements, read_records
from testkit.tables import append_rows


def _rows(group_id: str, *, commits: bool) -> dict[str, list[dict[str, Any]]]:
    tables = (*DERIVED_TABLES, *HISTORY, *HISTORY.values(), "topics", REMOVALS)
    partition = {"offsets_partition": 0, "log_id": 0, "history_complete_from": None}
    place = {
        "group_id": "app",
        "topic": "orders",
        "partition": 0,
        "offsets_partition": 0,
        "record_offset": 7,
        "log_id": 0,
    }
    return {name: [] for name in tables} | {
        "groups": [dict.fromkeys(load_schema("groups").column_names) | {"offsets_partition": 0, "group_id": group_id}],
        "committed_offsets": [place] if commits else [],
        "offsets_partitions": [partition],
    }


def _found(rows: Mapping[str, list[dict[str, Any]]]) -> set[tuple[str, Any, str]]:
    return {(each.table, each.key, each.column) for each in disagreements(rows) if each.column == ROW}


def test_a_group_that_only_commits_is_known_by_its_offsets() -> None:
    assert _found(_rows("app", commits=True)) == set()
    assert _found(_rows("apx", commits=True)) == {("groups", (0, "app"), ROW)}


def test_a_group_whose_offsets_are_gone_is_known_only_to_its_coordinator() -> None:
    assert _found(_rows("app", commits=False)) == set()


def _removal(record_offset: int, log_id: int = 0) -> dict[str, Any]:
    return {"log_id": log_id, "offsets_partition": 0, "group_id": "app", "record_offset": record_offset}


def test_a_group_that_a_tombstone_removed_after_its_offsets_does_not_exist() -> None:
    rows = _rows("app", commits=True) | {"groups": []}
    for removal, is_missing in ((_removal(8), False), (_removal(6), True), (_removal(8, log_id=1), True)):
        assert bool(_found(rows | {REMOVALS: [removal]})) is is_missing


def test_removals_are_read_from_the_history(tables: PathStore) -> None:
    committed, tombstone = _rows("app", commits=True)["committed_offsets"], _removal(8)
    append_rows(Path(tables.root), "committed_offsets", committed)
    of_group, of_member = {"key_type": 2, "is_tombstone": True}, {"key_type": 5, "is_tombstone": True}
    value = {"key_type": 2, "is_tombstone": False, "record_offset": 11}
    append_rows(
        Path(tables.root), "group_records", [tombstone | of_group, tombstone | of_member | {"record_offset": 9}]
    )
    append_rows(Path(tables.root), "group_records", [tombstone | value])
    assert read_records(tables)[REMOVALS] == [tombstone]
    append_rows(Path(tables.root), "groups", [{"offsets_partition": 0, "group_id": "app", "log_id": 0}])
    assert read_records(tables)[REMOVALS] == []
