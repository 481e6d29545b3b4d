"""The job's writes beside somebody's OPTIMIZE or DELETE: they lose, and are done again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from offsetstream.tables import arrow_rows, merge, small
from offsetstream.tables.arrow_rows import append_rows, merge_rows
from offsetstream.tables.create import create_tables
from offsetstream.tables.location import TablesLocation
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small import insert_rows, read_rows
from offsetstream.tables.transaction import BatchId, app_id

SIGNATURE = ["checkpoint_id", "batch_id", "written_day"]
Write = Callable[[TablesLocation, int], None]


def insert_event(tables: TablesLocation, number: int) -> None:
    row = {"offsets_partition": number, "log_id": 0, "event": "loaded", "load_id": 1}
    insert_rows(tables, "partition_events", [row], BatchId(1, number))


def merge_group(tables: TablesLocation, number: int) -> None:
    row = {"offsets_partition": number, "group_id": "g"}
    merge_rows(tables, "groups", pa.Table.from_pylist([row], schema=load_schema("groups").arrow), BatchId(1, number))


def append_commit(tables: TablesLocation, number: int) -> None:
    row = {"offsets_partition": number, "log_id": 0, "group_id": "g", "record_offset": number, "is_tombstone": False}
    rows = pa.Table.from_pylist([row], schema=load_schema("offset_commits").arrow)
    append_rows(tables, "offset_commits", rows.drop_columns(SIGNATURE), BatchId(1, number))


def optimize(table: DeltaTable) -> int:
    return int(table.optimize.compact()["numFilesRemoved"])


def delete_two(table: DeltaTable) -> int:
    return int(table.delete("offsets_partition < 2")["num_removed_files"])


@pytest.mark.parametrize(
    ("name", "write", "module", "on_the_way", "beat", "left"),
    [
        ("partition_events", insert_event, small, "_arrow", optimize, [0, 1, 2]),
        ("groups", merge_group, merge, "is_done", optimize, [0, 1, 2]),
        ("offset_commits", append_commit, arrow_rows, "is_done", optimize, [0, 1, 2]),
        ("offset_commits", append_commit, arrow_rows, "is_done", delete_two, [2]),
    ],
)
def test_a_write_that_loses_is_done_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    write: Write,
    module: Any,
    on_the_way: str,
    beat: Callable[[DeltaTable], int],
    left: list[int],
) -> None:
    tables = TablesLocation(str(tmp_path))
    create_tables(tables, "cluster-1", "new")
    write(tables, 0)
    write(tables, 1)
    original, beaten = getattr(module, on_the_way), list[int]()

    def beaten_once(*arguments: Any) -> Any:
        """Runs once the write has opened the table."""
        if not beaten:
            beaten.append(beat(DeltaTable(tables.table(name))))
        return original(*arguments)

    monkeypatch.setattr(module, on_the_way, beaten_once)
    write(tables, 2)
    assert beaten == [2]
    table = DeltaTable(tables.table(name))
    assert sorted(row["offsets_partition"] for row in read_rows(table)) == left
    assert table.transaction_version(app_id(name)) == BatchId(1, 2).version


def test_a_write_that_always_loses_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = TablesLocation(str(tmp_path))
    create_tables(tables, "cluster-1", "new")
    tried: list[int] = []

    def always_beaten(*_: Any) -> None:
        tried.append(1)
        raise CommitFailedError("somebody was quicker")

    monkeypatch.setattr(merge, "is_done", always_beaten)
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(CommitFailedError, match="somebody was quicker"):
        merge_group(tables, 0)
    assert len(tried) > 1
