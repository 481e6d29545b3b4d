"""`offsetstream sql`: it reads all tables and views, and reaches nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offsetstream.tables.schema import all_schemas
from offsetstream.views.files import all_views
from testkit.tables import append_rows, new_tables
from tests.unit.cli.conftest import Run, commit

EXPECTED = {"committed_offsets": 2, "lag": 2, "clock": 1, "groups": 0}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables in a folder whose name SQL reads otherwise."""
    root = tmp_path_factory.mktemp("tables")
    new_tables(root)
    append_rows(root, "committed_offsets", [commit("app", "t", 0, 100), commit("app", "t", 1, 50)])
    return root.rename(root.with_name("it's one"))


@pytest.mark.parametrize("name", [*all_schemas(), "thresholds", "operations", *(v.name for v in all_views().values())])
def test_every_table_and_view_answers(run: Run, tables: Path, name: str) -> None:
    done = run("sql", f"FROM {name} SELECT count(*) AS rows", "--at", "10m", "--output", "json", tables=tables)
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.output)
    assert row["rows"] == EXPECTED.get(name, row["rows"])


def test_what_it_prints(run: Run, tables: Path) -> None:
    query = "SELECT topic, partition, committed_offset AS topic FROM committed_offsets ORDER BY ALL"
    done = run("sql", query, tables=tables)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["topic partition topic_1", "t     0         100", "t     1         50"]
    assert run("sql", query, "--output", "csv", tables=tables).stdout.splitlines()[1] == "t,0,100"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("TIMESTAMPTZ '2026-01-01 03:00+00'", "2026-01-01T03:00:00.000Z"),
        ("TIMESTAMPTZ '2026-01-01 03:00:00.000001+00'", "2026-01-01T03:00:00.000001Z"),
        ("DATE '2026-01-01'", "2026-01-01"),
        ("1.5::DECIMAL(3,1)", 1.5),
        ("'nan'::DOUBLE", "nan"),
        ("INTERVAL 1 HOUR", "1:00:00"),
        ("'\\xAB'::BLOB", "ab"),
        ("[1, 2]", "[1, 2]"),
        ("{'a': DATE '2026-01-01'}", '{"a": "2026-01-01"}'),
        ("true", True),
        ("NULL", None),
        ("sum(7::BIGINT)", 7),
    ],
)
def test_values_of_every_kind(run: Run, tables: Path, value: str, shown: object) -> None:
    assert json.loads(run("sql", f"SELECT {value} AS x", "--output", "json", tables=tables).stdout) == [{"x": shown}]


ESCAPES = (
    "SELECT * FROM read_csv('{file}')",
    "SELECT * FROM read_text('{file}')",
    "SELECT * FROM read_blob('{file}')",
    "SELECT * FROM read_json('{file}')",
    "SELECT * FROM '{file}'",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT * FROM read_parquet('{folder}/*.parquet')",
    "SELECT * FROM parquet_metadata('{file}')",
    "SELECT * FROM sniff_csv('{file}')",
    "SELECT * FROM read_csv('https://127.0.0.1:1/a.csv')",
    "SELECT * FROM 'http://127.0.0.1:1/a.parquet'",
    "SELECT * FROM 's3://bucket/a.parquet'",
    "COPY (SELECT 1) TO '{out}'",
    "COPY committed_offsets TO '{out}' (FORMAT parquet)",
    "EXPORT DATABASE '{out}'",
    "ATTACH '{out}'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "PRAGMA threads = 1",
    "CALL enable_logging(storage = 'file', storage_path = '{out}')",
    "SELECT * FROM enable_logging(storage = 'file', storage_path = '{out}')",
    "CREATE TABLE mine AS SELECT 1",
    "INSERT INTO committed_offsets SELECT * FROM committed_offsets",
    "DELETE FROM committed_offsets",
    "SELECT 1; COPY (SELECT 1) TO '{out}'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}'",
    "SELECT * FROM query('COPY (SELECT 1) TO ''{out}''')",
    "CREATE SECRET (TYPE s3, KEY_ID 'a', SECRET 'b')",
    "SELECT getenv('HOME')",
    "SELECT * FROM reader",  # a variable of ours
)


@pytest.mark.parametrize("query", ESCAPES)
def test_query_cannot_leave_the_sandbox(run: Run, tables: Path, tmp_path: Path, query: str) -> None:
    """Whatever is not the tables is refused, in one line, and nothing is read or written."""
    secret, out = tmp_path / "secret.csv", tmp_path / "out"
    secret.write_text("a,b\nsecret,1\n")
    asked = query.format(file=secret, folder=tmp_path, out=out)
    done = run("sql", asked + ("" if "committed_offsets" in query else " -- committed_offsets"), tables=tables)
    assert done.exit_code in {1, 2}
    assert (done.stdout, len(done.stderr.splitlines())) == ("", 1)
    assert not out.exists()
    assert "secret,1" not in done.output


def test_a_second_statement_is_refused_whatever_it_is(run: Run, tables: Path) -> None:
    done = run("sql", "SELECT 1; SELECT 2", tables=tables)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "sql takes one SELECT" in done.stderr


def test_the_tables_files_are_not_written(run: Run, tables: Path) -> None:
    (file, *_) = (tables / "committed_offsets").glob("*.parquet")
    before = file.read_bytes()
    name = str(file).replace("'", "''")
    done = run("sql", f"COPY (FROM committed_offsets) TO '{name}'", tables=tables)
    assert (done.exit_code, file.read_bytes()) == (2, before)


def test_unknown_names_give_an_error(run: Run, tables: Path, tmp_path: Path) -> None:
    for query, told in (
        ("SELECT * FROM lagg", "there is no table or view lagg; nearest: lag"),
        ("SELECT * FROM files", "there is no table or view files"),  # a variable where DuckDB is called
        ("SELECT nothing FROM lag", 'Referenced column "nothing" not found'),
        ("SELEC 1", "DuckDB refuses the query: Parser Error"),
        ("SELECT 1/0 FROM query_table('nothing')", "there is no table or view nothing"),
        ("SELECT error('at the end')", "DuckDB refuses the query: Invalid Input Error: at the end"),
    ):
        done = run("sql", query, tables=tables)
        assert (done.exit_code, done.stdout, told in done.stderr) == (1, "", True), done.output
    without = run("sql", "SELECT * FROM offsets_at", tables=tables)
    assert (without.exit_code, "give --at" in without.stderr) == (2, True)
    nothing = run("sql", "SELECT * FROM groups", tables=tmp_path)
    assert (nothing.exit_code, "there is no table" in nothing.stderr) == (1, True)
    assert run("sql").exit_code == 2
    assert run("sql", "--list", "SELECT 1").exit_code == 2


def test_a_word_that_is_also_a_table_needs_no_table(run: Run, tmp_path: Path) -> None:
    done = run("sql", "SELECT 1 AS lag, 'groups' AS groups", tables=tmp_path)
    assert done.stdout.splitlines() == ["lag groups", "1   groups"]


def test_the_list(run: Run) -> None:
    shown = json.loads(run("sql", "--list", "--output", "json").stdout)
    assert {row["name"] for row in shown if row["kind"] == "table"} == {*all_schemas(), "thresholds", "operations"}
    assert {row["name"] for row in shown if row["kind"] == "view"} == {
        view.name for view in all_views().values() if not view.is_helper
    }
    assert all(row["what"] for row in shown)
