"""The state tables compared with the records behind them."""

from collections.abc import Mapping
from typing import Any

from offsetstream.tables.names import DERIVED_TABLES
from offsetstream.tables.schema import load_schema
from offsetstream.verify.difference import ROW
from offsetstream.verify.records import HISTORY, disagreements


def _rows(group_id: str, *, commits: bool) -> dict[str, list[dict[str, Any]]]:
    tables = (*DERIVED_TABLES, *HISTORY, *HISTORY.values(), "topics")
    partition = {"offsets_partition": 0, "log_id": 0, "history_complete_from": None}
    place = {"group_id": "app", "topic": "orders", "partition": 0, "offsets_partition": 0, "record_offset": 7}
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
