"""`offsetstream sql`: it reads all tables and views, and reaches nothing else."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from offsetstream.tables.location import store_at
from offsetstream.tables.schema import all_schemas
from offsetstream.views.files import all_views
from offsetstream.views.reader import ViewReader
from offsetstream.views.sandbox import Limits, Query
from testkit.processes import within
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
        ("[[1], [2]]", [[1], [2]]),
        ("{'a': DATE '2026-01-01'}", {"a": "2026-01-01"}),
        ("true", True),
        ("NULL", None),
        ("sum(7::BIGINT)", 7),
    ],
)
def test_values_of_every_kind(run: Run, tables: Path, value: str, shown: object) -> None:
    assert json.loads(run("sql", f"SELECT {value} AS x", "--output", "json", tables=tables).stdout) == [{"x": shown}]


def test_a_list_is_json_in_csv_too(run: Run, tables: Path) -> None:
    shown = run("sql", "SELECT [[1], [2]] AS x", "--output", "csv", tables=tables).stdout
    assert shown.splitlines()[1] == '"[[1], [2]]"'


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


NEEDS_MEMORY = "SELECT len(list(n)) FROM range(100000000) t(n)"
NEVER_ENDS = "SELECT count(*) FROM range(10000000000000)"


@pytest.mark.parametrize(
    ("query", "options", "reason"),
    [
        (NEEDS_MEMORY, ("--memory", "100MB"), "the query needs more memory than --memory 100MB"),
        (NEEDS_MEMORY, (), "the query needs more memory than --memory 1GB"),
        (NEEDS_MEMORY.replace("list", "string_agg"), ("--memory", "50MiB"), "more memory than --memory 50MiB"),
        (NEVER_ENDS, ("--timeout", "0.5"), "the query was stopped after --timeout 0.5 seconds"),
        (NEVER_ENDS + ", committed_offsets", ("--timeout", "0.5"), "--timeout 0.5"),
    ],
)
def test_a_query_beyond_a_limit_fails_in_one_line(
    run: Run, tables: Path, query: str, options: tuple[str, ...], reason: str
) -> None:
    done = run("sql", query, *options, tables=tables)
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (1, "", 1), done.output
    assert reason in done.stderr
    assert run("sql", "SELECT 1", tables=tables).exit_code == 0  # limits of this process are restored


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits what DuckDB does not count")
@pytest.mark.parametrize("query", ["SELECT length(repeat('x', 4000000000))", "SELECT len(range(400000000))"])
def test_memory_that_duckdb_does_not_count_is_limited(query: str, tmp_path: Path) -> None:
    """A query of one row took 8 GB, with DuckDB's limit of 400 MB."""
    done = within("sql", query, "--memory", "100MB", "--tables", str(tmp_path))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1), done
    assert "the query needs more memory than --memory 100MB" in done.stderr


def test_a_query_that_cannot_be_interrupted_ends_with_the_process(tmp_path: Path) -> None:
    endless = "SELECT levenshtein(repeat('x', 400000), repeat('y', 400000))"
    done = within("sql", endless, "--timeout", "0.5", "--tables", str(tmp_path))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1), done
    assert "--timeout 0.5 seconds" in done.stderr


def test_a_sort_larger_than_the_memory_goes_to_disk(run: Run, tables: Path) -> None:
    query = "SELECT count(*) AS n FROM (SELECT n FROM range(20000000) t(n) ORDER BY hash(n)) WHERE n > 5"
    done = run("sql", query, "--memory", "100MB", tables=tables)
    assert done.stdout.split() == ["n", "19999994"], done.output


def test_time_of_a_slow_reader_is_not_that_of_the_query(tables: Path) -> None:
    query = Query(ViewReader(store_at(str(tables))), "FROM range(10000)", limits=Limits(seconds=1.0))
    rows = query.rows()
    next(rows)
    time.sleep(1.2)  # as a pager does
    assert sum(1 for _ in rows) == 9_999


@pytest.mark.parametrize("size", ["lots", "0MB", "-1GB", "80%", "1", ""])
def test_invalid_memory_is_refused(run: Run, size: str) -> None:
    done = run("sql", "SELECT 1", "--memory", size)
    assert (done.exit_code, "is not a size of memory: give 400MB or 2GB" in done.stderr) == (2, True)


@pytest.mark.parametrize("seconds", ["0", "-1"])
def test_no_time_for_a_query_is_refused(run: Run, seconds: str) -> None:
    assert run("sql", "SELECT 1", "--timeout", seconds).exit_code == 2


def test_the_information_schema_lists_tables_and_views_with_their_columns(run: Run, tables: Path) -> None:
    query = "SELECT table_name, column_name FROM information_schema.columns"
    done = run("sql", query, "--output", "json", tables=tables)
    assert done.exit_code == 0, done.output
    found = {(row["table_name"], row["column_name"]) for row in json.loads(done.output)}
    views = [view for view in all_views().values() if not view.is_at and not view.is_helper]
    assert found >= {(view.name, column) for view in views for column in view.column_names}
    assert found >= {(schema.name, column) for schema in all_schemas().values() for column in schema.column_names}


@pytest.mark.parametrize("query", ["SHOW TABLES", " show all tables ;"])
def test_show_tables_names_what_the_list_names(run: Run, query: str) -> None:
    listed = {row["name"] for row in json.loads(run("sql", "--list", "--output", "json").stdout)}
    assert {row["name"] for row in json.loads(run("sql", query, "--output", "json").stdout)} == listed


def test_the_help_has_the_limits_of_the_sandbox(run: Run) -> None:
    shown = " ".join(run("sql", "--help").stdout.split())
    assert f"[default: {Limits.memory}]" in shown
    assert f"[default: {Limits.seconds}]" in shown


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
