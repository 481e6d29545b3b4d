from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetstream.errors import TablesError
from offsetstream.tables.location import store_at
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import load_schema
from testkit.tables import append_rows, create_empty_tables, create_table

HOSTILE = ["", " ", ",", '"', "'", "a\nb", "a\x00b", "\r\n", "%", "_", "null", "grüppe", "😀", "';--", "a*?[b]"]


def lookup(root: Path) -> Lookup:
    return Lookup(PathStore(str(root)))


def group_ids(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(row["group_id"] for row in rows)


def append_groups(root: Path, *ids: str) -> None:
    append_rows(root, "groups", [{"offsets_partition": 1, "group_id": group_id} for group_id in ids])


def test_rows_of_all_files_with_the_requested_columns(tmp_path: Path) -> None:
    append_groups(tmp_path, "a", "b")
    append_groups(tmp_path, "c")
    rows = lookup(tmp_path).rows("groups", ["group_id", "offsets_partition", "state"])
    assert sorted(rows, key=lambda row: str(row["group_id"])) == [
        {"group_id": group_id, "offsets_partition": 1, "state": None} for group_id in "abc"
    ]


def test_deleted_rows_are_not_read(tmp_path: Path) -> None:
    append_groups(tmp_path, "a", "b")
    DeltaTable(tmp_path / "groups").delete("group_id = 'a'")
    assert group_ids(lookup(tmp_path).rows("groups", ["group_id"])) == ["b"]


def test_rows_with_the_requested_values(tmp_path: Path) -> None:
    rows = [{"group_id": g, "topic": t, "partition": p} for g in "ab" for t in "xy" for p in range(3)]
    append_rows(tmp_path, "committed_offsets", rows)

    def count(**where: Any) -> int:
        return len(lookup(tmp_path).rows("committed_offsets", ["group_id"], where))

    assert count() == 12
    assert count(group_id=None) == 12
    assert count(group_id=["a"]) == 6
    assert count(group_id={"a", "b", "c"}) == 12
    assert count(group_id=["a"], topic=["x"], partition=[1, 2]) == 2
    assert count(group_id=[]) == 0


@pytest.mark.parametrize("group_id", HOSTILE)
def test_a_group_id_with_sql_finds_only_its_own_row(tmp_path: Path, group_id: str) -> None:
    append_groups(tmp_path, *HOSTILE)
    found = lookup(tmp_path).rows("groups", ["group_id"], {"group_id": [group_id]})
    assert found == [{"group_id": group_id}]


@settings(max_examples=25)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), unique=True, min_size=1))
def test_any_text_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, ids: list[str]) -> None:
    root = tmp_path_factory.mktemp("tables")
    append_groups(root, *ids)
    assert group_ids(lookup(root).rows("groups", ["group_id"], {"group_id": ids})) == sorted(ids)


@settings(max_examples=25)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), unique=True, min_size=1))
def test_a_stream_is_in_the_order_of_code_points(tmp_path_factory: pytest.TempPathFactory, ids: list[str]) -> None:
    root = tmp_path_factory.mktemp("tables")
    append_groups(root, *ids)
    streamed = lookup(root).stream("groups", ["group_id"], {"group_id": ids}, order=["group_id"])
    assert [row["group_id"] for row in streamed] == sorted(ids)


def test_streams_of_a_lookup_are_read_side_by_side(tmp_path: Path) -> None:
    ids = [f"group-{number:04}" for number in range(5000)]
    append_groups(tmp_path, *ids)
    one = lookup(tmp_path)
    streams = [one.stream("groups", ["group_id", "state"], order=["group_id"]) for _ in range(2)]
    assert [tuple(row["group_id"] for row in rows) for rows in zip(*streams, strict=True)] == [(i, i) for i in ids]
    assert len(one.rows("groups", ["group_id"])) == len(ids)


def test_a_column_that_all_files_lack_is_null(tmp_path: Path) -> None:
    rows = pa.table({"group_id": ["a"], "offsets_partition": pa.array([1], pa.int32())})
    create_table(tmp_path, load_schema("groups"), rows.schema)
    write_deltalake(tmp_path / "groups", rows, mode="append")
    row = {"group_id": "a", "state": None, "state_timestamp_ms": None}
    assert lookup(tmp_path).rows("groups", list(row)) == [row]
    assert list(lookup(tmp_path).stream("groups", list(row), order=["group_id"])) == [row]
    with pytest.raises(ValueError, match="groups has no column nonsense"):
        lookup(tmp_path).rows("groups", ["nonsense"])


def test_a_time_is_read_in_milliseconds(tmp_path: Path) -> None:
    time = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    append_rows(tmp_path, "groups", [{"group_id": "a", "state_timestamp": time}])
    append_groups(tmp_path, "b")
    found = lookup(tmp_path).rows("groups", ["state_timestamp_ms"], {"group_id": ["a"]})
    assert found == [{"state_timestamp_ms": int(time.timestamp() * 1000)}]
    assert lookup(tmp_path).rows("groups", ["state_timestamp_ms"], {"group_id": ["b"]}) == [
        {"state_timestamp_ms": None}
    ]


def test_distinct_rows(tmp_path: Path) -> None:
    append_rows(tmp_path, "committed_offsets", [{"topic": "t", "partition": p} for p in range(5)])
    assert lookup(tmp_path).rows("committed_offsets", ["topic"], distinct=True) == [{"topic": "t"}]


def test_an_empty_table_has_no_rows(tmp_path: Path) -> None:
    create_empty_tables(tmp_path)
    assert lookup(tmp_path).rows("groups", ["group_id"]) == []


@pytest.mark.parametrize("folder", ["a b", "a*", "a?{y}", "a#b", "100%", "it's", "ü"])
def test_any_folder_name(tmp_path: Path, folder: str) -> None:
    append_groups(tmp_path / folder, "a")
    append_groups(tmp_path / "ab", "not this one")
    assert group_ids(lookup(tmp_path / folder).rows("groups", ["group_id"])) == ["a"]


def test_tables_named_by_a_uri(tmp_path: Path) -> None:
    append_groups(tmp_path, "a", "b")
    by_uri = Lookup(store_at(tmp_path.as_uri()))
    assert by_uri.rows("groups", ["group_id"], {"group_id": ["b"]}) == [{"group_id": "b"}]


def test_a_column_that_older_files_lack_is_null_in_them(tmp_path: Path) -> None:
    append_groups(tmp_path, "old")
    added = pa.table({"group_id": ["new"], "added": [1]})
    write_deltalake(tmp_path / "groups", added, mode="append", schema_mode="merge")
    rows = lookup(tmp_path).rows("groups", ["group_id", "added"])
    assert {row["group_id"]: row["added"] for row in rows} == {"old": None, "new": 1}


def test_tables_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(TablesError) as raised:
        lookup(tmp_path).rows("groups", ["group_id"])
    assert str(raised.value) == (
        f"there is no table {tmp_path}/groups: name the folder of the tables with --tables, "
        "or create them with 'offsetstream run'"
    )


def test_a_damaged_file_is_named_in_one_line(tmp_path: Path) -> None:
    append_groups(tmp_path, "a")
    file = next((tmp_path / "groups").glob("*.parquet"))
    file.write_bytes(b"garbage" * 10)
    with pytest.raises(
        TablesError,
        match=r"the table .*/groups is damaged: part-.* has 70 of [\d,]+ bytes. See .* 'offsetstream repair",
    ) as raised:
        lookup(tmp_path).rows("groups", ["group_id"])
    assert "\n" not in str(raised.value)


def test_a_file_that_is_gone_is_an_error_and_not_fewer_rows(tmp_path: Path) -> None:
    append_groups(tmp_path, "a")
    append_groups(tmp_path, "b")
    next((tmp_path / "groups").glob("*.parquet")).unlink()
    with pytest.raises(TablesError, match=r"/groups is damaged: part-.* is missing"):
        lookup(tmp_path).rows("groups", ["group_id"])


def test_a_damaged_log_is_an_error(tmp_path: Path) -> None:
    append_groups(tmp_path, "a")
    for entry in (tmp_path / "groups" / "_delta_log").glob("*.json"):
        entry.write_text("garbage")
    with pytest.raises(TablesError, match=r"/groups is damaged: _delta_log/0{20}.json is not JSON"):
        lookup(tmp_path).rows("groups", ["group_id"])
