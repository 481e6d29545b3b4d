from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import example, given, settings
from hypothesis import strategies as st

from offsetstream.errors import TablesError
from offsetstream.tables.lookup import Lookup, fetch_rows, open_connection
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


ANY_TEXT = st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=["Cs"]))


@settings(max_examples=25)
@given(st.lists(ANY_TEXT, unique=True, min_size=1))
@example(HOSTILE)
def test_any_text_is_found_as_itself_and_streamed_in_the_order_of_code_points(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str]
) -> None:
    root = tmp_path_factory.mktemp("tables")
    append_groups(root, *ids)
    for wanted in (ids, *([each] for each in ids)):
        assert group_ids(lookup(root).rows("groups", ["group_id"], {"group_id": wanted})) == sorted(wanted)
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


def test_distinct_rows_and_none(tmp_path: Path) -> None:
    create_empty_tables(tmp_path)
    assert lookup(tmp_path).rows("committed_offsets", ["topic"], distinct=True) == []
    append_rows(tmp_path, "committed_offsets", [{"topic": "t", "partition": p} for p in range(5)])
    assert lookup(tmp_path).rows("committed_offsets", ["topic"], distinct=True) == [{"topic": "t"}]


def test_a_column_that_older_files_lack_is_null_in_them(tmp_path: Path) -> None:
    append_groups(tmp_path, "old")
    added = pa.table({"group_id": ["new"], "added": [1]})
    write_deltalake(tmp_path / "groups", added, mode="append", schema_mode="merge")
    rows = lookup(tmp_path).rows("groups", ["group_id", "added"])
    assert {row["group_id"]: row["added"] for row in rows} == {"old": None, "new": 1}


def test_tables_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(TablesError, match=r"^there is no table .*/groups: name .* --tables, or create them .*run'$"):
        lookup(tmp_path).rows("groups", ["group_id"])


def cut_data(folder: Path) -> None:
    next(folder.glob("*.parquet")).write_bytes(b"garbage" * 10)


def remove_data(folder: Path) -> None:
    next(folder.glob("*.parquet")).unlink()


def cut_log(folder: Path) -> None:
    for entry in (folder / "_delta_log").glob("*.json"):
        entry.write_text("garbage")


@pytest.mark.parametrize(
    ("damaging", "said"),
    [
        (cut_data, r"part-.* has 70 of [\d,]+ bytes. See .* 'offsetstream repair"),
        (remove_data, "part-.* is missing"),
        (cut_log, "_delta_log/0{20}.json is not JSON"),
    ],
)
def test_damage_is_an_error_of_one_line_and_not_fewer_rows(
    tmp_path: Path, damaging: Callable[[Path], None], said: str
) -> None:
    append_groups(tmp_path, "a")
    append_groups(tmp_path, "b")
    damaging(tmp_path / "groups")
    with pytest.raises(TablesError, match=f"the table .*/groups is damaged: {said}") as raised:
        lookup(tmp_path).rows("groups", ["group_id"])
    assert "\n" not in str(raised.value)


_VALUES = """
SELECT TIMESTAMPTZ '2026-11-23 03:00:00.123456+01' AS "an instant", 1 AS number, 'x' AS text,
       [TIMESTAMPTZ '2026-11-23 03:00:00+00'] AS list, TIMESTAMP '2026-11-23 03:00:00' AS bare
UNION ALL SELECT NULL, NULL, NULL, NULL, NULL
UNION ALL SELECT TIMESTAMPTZ '0001-01-01 00:00:00+00', 2, '', [], TIMESTAMP '9999-12-31 23:59:59.999999'
UNION ALL SELECT TIMESTAMPTZ '10000-01-01 00:00:00+00', 3, 'y', NULL, NULL
"""


@pytest.fixture(params=["UTC", "Europe/Berlin"])
def connection(request: pytest.FixtureRequest) -> duckdb.DuckDBPyConnection:
    connection = open_connection()
    connection.execute(f"SET TimeZone = '{request.param}'")
    return connection


def test_fetched_rows_equal_those_of_duckdb_with_times_in_utc(connection: duckdb.DuckDBPyConnection) -> None:
    relation = connection.sql(_VALUES)
    rows = fetch_rows(relation, "number NULLS LAST")
    expected = [dict(zip(relation.columns, row, strict=True)) for row in relation.order("number NULLS LAST").fetchall()]
    for row in expected:
        if row["number"] == 3:  # Python does not support this year: DuckDB returns text
            row["an instant"] = "10000-01-01 00:00:00"
    assert rows == expected
    assert rows[0]["an instant"] == datetime(2026, 11, 23, 2, 0, 0, 123456, tzinfo=UTC)
    assert {row["an instant"].tzinfo for row in rows if isinstance(row["an instant"], datetime)} == {UTC}
    without_times = fetch_rows(connection.sql("FROM (VALUES (2, 'b'), (1, 'a')) AS t(n, x)"), "n")
    assert without_times == [{"n": 1, "x": "a"}, {"n": 2, "x": "b"}]


def test_a_large_result_keeps_its_order(connection: duckdb.DuckDBPyConnection) -> None:
    relation = connection.sql("SELECT to_timestamp(i * 7919 % 1000003) AS moment, i FROM range(300000) AS t(i)")
    rows = fetch_rows(relation, "moment DESC, i")
    assert [row["moment"] for row in rows] == sorted((row["moment"] for row in rows), reverse=True)
    assert len(rows) == 300000
