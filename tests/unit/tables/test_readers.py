"""Every engine can filter the driver's rows by text, whatever program wrote the earlier files."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from offsetstream.tables.path_store import PathStore, string_views
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.upgrade import upgrade_tables
from offsetstream.tables.version import PROPERTY
from testkit.engines import require_that_all_read
from testkit.merge_model import in_order
from testkit.tables import append_rows
from tests.unit.tables.small_writes import WRITES, SmallWrite


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.name)
def test_every_engine_can_filter_written_rows(tables: PathStore, write: SmallWrite) -> None:
    for step in (write.prepare, write.run):
        step(tables)
        assert require_that_all_read(tables, write.table)
    assert not has_string_views(tables.table(write.table))


def has_string_views(path: str) -> bool:
    files = pa.table(DeltaTable(path).get_add_actions(flatten=True))["path"].to_pylist()
    return any(string_views.has_string_views(pa.OSFile(f"{path}/{file}")) for file in files)


def test_an_upgrade_rewrites_files_of_delta_rs_merges(tables: PathStore) -> None:
    of_each = {write.table: write for write in WRITES if pa.string() in load_schema(write.table).arrow.types}
    for name, write in of_each.items():
        write.prepare(tables)
        table = DeltaTable(tables.table(name))
        column = next(column.name for column in load_schema(name).columns if column.type == "INT")
        table.update({column: f"{column} + 0"})  # like versions before 4
        table.alter.set_table_properties({PROPERTY: "3"}, raise_if_not_exists=False)
        assert has_string_views(tables.table(name))
    before = {name: in_order(read_rows(tables.open(name))) for name in of_each}
    assert set(upgrade_tables(tables)) == set(of_each)
    for name, rows in before.items():
        assert not has_string_views(tables.table(name))
        assert in_order(read_rows(tables.open(name))) == rows
        assert require_that_all_read(tables, name) == len(rows)
    assert upgrade_tables(tables) == []


def test_an_upgrade_leaves_days_whose_files_can_be_read(tables: PathStore) -> None:
    for day in ("2026-01-01", "2026-01-02"):
        append_rows(Path(tables.root), "offset_commits", [{"group_id": "g", "written_day": date.fromisoformat(day)}])
    table = DeltaTable(tables.table("offset_commits"))
    table.update({"group_id": "'h'"}, predicate="written_day = DATE '2026-01-02'")
    first = [file for file in table.file_uris() if "2026-01-01" in file]
    tables.open("offset_commits").rewrite_old_rows()
    files = DeltaTable(tables.table("offset_commits")).file_uris()
    assert set(first) < set(files)
    assert len(files) == 2
    assert not has_string_views(tables.table("offset_commits"))
