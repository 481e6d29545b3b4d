"""The tables as people explore them in a new interpreter: what they type, and what they see."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures

import offsetstream
from offsetstream.errors import NoTableError, OffsetstreamError, UnknownNameError, UsageError
from offsetstream.tables.path_store.store import PathSource, PathStore
from offsetstream.views.sandbox import QueryError
from testkit.group_world import GroupWorld
from testkit.tables import append_rows, new_tables
from testkit.waiting import await_

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "explore.ipynb"
NOW = datetime.now(UTC).replace(microsecond=0)
# Like a console or notebook: all cells share a namespace, and the value of a last expression is shown.
TYPING = """
import ast, json, sys
for missing in json.loads(sys.argv[2]):
    sys.modules[missing] = None
names = {"__name__": "__main__"}
for cell in json.loads(sys.argv[1]):
    tree = ast.parse(cell)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    if last is not None and (value := eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)) is not None:
        print(repr(value))
"""


def type_in(folder: Path, *cells: str, missing: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", TYPING, json.dumps(cells), json.dumps(missing)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that contains `tables`: two groups, and nine unread messages for one of them."""
    folder = tmp_path_factory.mktemp("explored")
    new_tables(folder / "tables")
    rows = []
    for group, offset in (("billing", 41), ("billing-test", 50)):
        place = {"offsets_partition": 1, "log_id": 0, "group_id": group, "topic": "orders", "partition": 0}
        at = {"commit_timestamp": NOW, "commit_timestamp_ms": int(NOW.timestamp() * 1000), "record_timestamp": NOW}
        rows.append(place | at | {"record_offset": offset, "committed_offset": offset})
    inside = {"in_coordinator_partition": True}
    append_rows(folder / "tables", "committed_offsets", [row | inside for row in rows])
    append_rows(
        folder / "tables",
        "offset_commits",
        [row | {"is_tombstone": False, "written_day": NOW.date()} for row in rows],
    )
    end = {"topic": "orders", "partition": 0, "log_start_offset": 0, "high_watermark": 50, "last_stable_offset": 50}
    append_rows(folder / "tables", "topic_partitions", [end | {"sampled_at": NOW, "changed_at": NOW}])
    return folder


@pytest.fixture
def tables(folder: Path) -> offsetstream.Tables:
    return offsetstream.open_tables(folder / "tables")


def test_the_contents_are_shown_at_once(folder: Path) -> None:
    done = type_in(folder, "import offsetstream", "tables = offsetstream.open_tables('tables')", "tables")
    assert (done.returncode, done.stderr) == (0, "")
    shown = [line.split() for line in done.stdout.splitlines()]
    assert shown[0] == ["Tables", "of", str(folder / "tables")]
    assert ["committed_offsets", "2"] in shown
    assert ["groups", "0"] in shown
    assert f"{len(offsetstream.open_tables(folder / 'tables').views)} views" in done.stdout
    assert "group_status," in done.stdout
    assert max(map(len, done.stdout.splitlines()[1:])) <= 120


def test_showing_the_contents_reads_no_data(tables: offsetstream.Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PathSource, "relation", lambda *_: pytest.fail("data was read"))
    assert "committed_offsets" in repr(tables)


def test_showing_the_contents_never_raises(folder: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(folder / "tables", tmp_path / "tables")
    tables = offsetstream.open_tables(damaged)
    shutil.rmtree(damaged / "groups")
    next((damaged / "topics" / "_delta_log").iterdir()).write_text("no JSON\n")
    vectors = DeltaTable(damaged / "committed_offsets")
    vectors.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    shown = {tuple(line.split()) for line in repr(tables).splitlines()}
    assert {("groups", "?"), ("topics", "?"), ("committed_offsets", "?"), ("offset_commits", "2")} <= shown
    shutil.rmtree(damaged)
    assert "committed_offsets" in repr(tables)


def test_showing_the_contents_sends_no_costly_request(folder: Path) -> None:
    opened: list[str] = []

    class ObjectStore(PathStore):
        check_seconds = 12.0

        def source(self, name: str) -> PathSource:
            opened.append(name)
            return super().source(name)

    tables = offsetstream.Tables(ObjectStore(str(folder / "tables")))
    tables.groups()
    shown = {tuple(line.split()) for line in repr(tables).splitlines()}
    assert {("groups", "0"), ("committed_offsets", "?")} <= shown
    assert opened == ["groups"]


def test_table_and_view_names_are_described(tables: offsetstream.Tables) -> None:
    assert tables.tables["committed_offsets"]
    assert {"thresholds", "operations"} <= tables.tables.keys()
    assert "lag" in tables.views
    assert tables.views["offsets_at"].endswith("(at=)")


def test_rows_are_frames_and_arrow(tables: offsetstream.Tables) -> None:
    rows = tables.view("lag", group="billing")
    assert isinstance(rows.arrow(), pa.Table)
    assert (rows.num_rows, len(rows), rows["lag"].to_pylist()) == (1, 1, [9])
    frame = rows.df()
    assert (list(frame["lag"]), str(frame["lag"].dtype)) == ([9], "int64[pyarrow]")
    assert rows.pl().select("group_id", "lag").rows() == [("billing", 9)]
    assert pl.DataFrame(rows).equals(rows.pl())
    assert pa.table(rows).equals(rows.arrow())
    assert {"df", "pl", "arrow", "to_pylist"} <= set(dir(rows))
    assert "billing" in repr(rows)
    assert "0 rows" in repr(tables.groups())


def test_the_day_of_a_partition_is_in_every_answer(tables: offsetstream.Tables) -> None:
    """The day is only in the files' paths."""
    today = NOW.date()
    assert {row["written_day"] for row in tables.read("offset_commits").to_pylist()} == {today}
    found = tables.sql(
        "SELECT written_day, count(*) AS n FROM offset_commits WHERE written_day IS NOT NULL GROUP BY ALL"
    )
    assert found.to_pylist() == [{"written_day": today, "n": 2}]


def test_a_folder_above_the_tables_adds_no_column(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder / "tables", tmp_path / "topic=elsewhere" / "day=1" / "tables")
    commits, before = (offsetstream.open_tables(each).offset_commits() for each in (copy, folder / "tables"))
    assert commits.column_names == before.column_names
    assert {row["topic"] for row in commits.to_pylist()} == {"orders"}


def test_filters_are_those_of_the_command_line(tables: offsetstream.Tables) -> None:
    assert tables.view("lag", group=["billing", "billing-test"], topic="orders", partition=0).num_rows == 2
    assert tables.read("offset_commits", group="billing-test").num_rows == 1
    assert tables.view("offsets_at", at="0s").column_names == tables.view("offsets_at", at=NOW).column_names
    asked = "SELECT group_id, count(*) AS n FROM offsets_at GROUP BY ALL"
    assert (
        tables.sql(asked, at="10m").num_rows == tables.sql(asked, at=datetime.now(UTC) - timedelta(minutes=10)).num_rows
    )


def test_sql_answers_from_tables_and_views(folder: Path) -> None:
    query = "SELECT group_id, lag, l.group_id FROM lag AS l JOIN committed_offsets USING (group_id) ORDER BY lag"
    code = f"import offsetstream; offsetstream.open_tables('tables').sql({query!r}).to_pylist()"
    done = type_in(folder, *code.split("; "))
    rows = [
        {"group_id": group, "lag": lag, "group_id_1": group} for group, lag in (("billing-test", 0), ("billing", 9))
    ]
    assert done.stdout.strip() == repr(rows)


@pytest.mark.parametrize("query", ["SELECT * FROM '{secret}'", "FROM secret", "COPY (SELECT 1) TO '{secret}'"])
def test_sql_reaches_nothing_else(tables: offsetstream.Tables, tmp_path: Path, query: str) -> None:
    (file := tmp_path / "secret.csv").write_text("a\n1\n")
    secret = pa.table({"a": [1]})
    assert secret.num_rows == 1
    with pytest.raises(OffsetstreamError):
        tables.sql(query.format(secret=file))
    assert file.read_text() == "a\n1\n"


def test_all_answers_have_the_same_time(folder: Path, tmp_path: Path) -> None:
    tables = offsetstream.open_tables(shutil.copytree(folder / "tables", tmp_path / "tables"))
    before = tables.committed_offsets().num_rows
    append_rows(tmp_path / "tables", "committed_offsets", [{"group_id": "new", "in_coordinator_partition": True}])
    counted = tables.sql("SELECT count(*) AS n FROM committed_offsets")["n"].to_pylist()
    assert counted == [tables.committed_offsets().num_rows] == [before]


@pytest.mark.parametrize(("max_age", "is_stale"), [(timedelta.max, False), (timedelta(0), True)])
def test_a_maximum_age_applies_to_views_and_sql(tmp_path: Path, max_age: timedelta, is_stale: bool) -> None:
    new_tables(tmp_path, GroupWorld(1).rows)
    tables = offsetstream.open_tables(tmp_path, max_age=max_age)
    assert tables.freshness()["is_stale"].unique().to_pylist() == [is_stale]
    assert tables.sql("SELECT DISTINCT is_stale FROM freshness").to_pylist() == [{"is_stale": is_stale}]


def test_a_later_answer_of_the_same_object_is_older(tmp_path: Path) -> None:
    new_tables(tmp_path, GroupWorld(1).rows)
    as_of = min(offsetstream.open_tables(tmp_path).freshness()["as_of"].to_pylist())
    tables = offsetstream.open_tables(tmp_path, max_age=datetime.now(UTC) - as_of + timedelta(seconds=5))
    assert not any(tables.freshness()["is_stale"].to_pylist())
    await_(lambda: any(tables.freshness()["is_stale"].to_pylist()))


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("read('comitted_offsets')", "there is no table comitted_offsets; nearest: committed_offsets"),
        ("read('lag')", "there is no table lag; lag is a view: view('lag')"),
        ("view('lagg')", "there is no view lagg; nearest: lag"),
        ("view('groups')", "there is no view groups; groups is a table: read('groups')"),
        ("view('lag', partitions=0)", "lag has no parameter partitions; nearest: partition"),
        ("view('lag', grup='billing')", "lag has no parameter grup; nearest: group"),
        ("view('lag', group_id='billing')", "lag has no parameter group_id; nearest: group"),
        ("read('topics', group='billing')", "topics has no parameter group"),
        ("view('lag', group='biling')", "group 'biling' is not there; nearest: 'billing', 'billing-test'"),
        ("committed_offsets(topic='order')", "topic 'order' is not there; nearest: 'orders'"),
        ("groups(group=['x1', 'billing', 'x2'])", "group 'x1' is not there; 1 more is not there either"),
        ("sql('SELECT 1', memory='lots')", "'lots' is not a size of memory: give 400MB or 2GB"),
        ("sql('SELECT len(list(n)) FROM range(100000000) t(n)', memory='50MB')", "in Python memory='4GB'"),
        ("sql('SELECT count(*) FROM range(10000000000000)', timeout=0.1)", "in Python timeout=3600"),
        ("sql('FROM lagg')", "there is no table or view lagg; nearest: lag"),
        ("sql('SELECT grup_id FROM groups')", "not found in FROM clause!; nearest: group_id"),
        ("view('offsets_at')", "the view offsets_at needs an instant: give --at 10m"),
        ("view('offsets_at', at='soon')", "'soon' is not a time: give 10m"),
        ("view('lag', at='10m')", "lag answers about now only"),
        ("sql('FROM offsets_at')", "in Python at='10m'"),
    ],
)
def test_an_error_is_one_line_with_the_nearest_name(tables: offsetstream.Tables, typed: str, told: str) -> None:
    with pytest.raises((UsageError, UnknownNameError, QueryError)) as raised:
        eval(f"tables.{typed}", {"tables": tables})  # noqa: S307 - ours, as a user types it
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_group_without_rows_is_no_error(tables: offsetstream.Tables) -> None:
    assert tables.groups(group="billing").num_rows == 0


@pytest.mark.parametrize("named", ["nope", "file:///nope"])
def test_missing_tables_are_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NoTableError, match=r"^there are no tables in /.*nope: name a job's folder.*$"):
        offsetstream.open_tables(named)
    done = type_in(tmp_path, "import offsetstream", f"offsetstream.open_tables({named!r})")
    assert done.stderr.splitlines()[-1].startswith("offsetstream.errors.NoTableError: there are no tables in /")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("typed", "missing", "extra"),
    [
        ("offsetstream.open_tables('tables').groups().df()", "pandas", "pandas"),
        ("offsetstream.open_tables('tables').groups().pl()", "polars", "polars"),
        ("offsetstream.auto_committing_consumer", "confluent_kafka", "cluster"),
        ("offsetstream.fetch_offsets", "confluent_kafka", "spark"),  # by Java, which PySpark brings
        ("from offsetstream import run", "py4j", "spark"),
        ("offsetstream.JobSettings", "javaproperties", "spark"),
    ],
)
def test_a_missing_package_is_a_one_line_error(folder: Path, typed: str, missing: str, extra: str) -> None:
    done = type_in(folder, "import offsetstream", typed, missing=[missing])
    told = f"MissingPackageError: this needs the package {missing}: pip install 'offsetstream[{extra}]'"
    assert done.stderr.splitlines()[-1] == f"offsetstream.errors.{told}"
    assert done.stderr.count("Error: ") == 1


@pytest.mark.long
def test_a_type_checker_knows_the_names(tmp_path: Path) -> None:
    """The names are made from the views (tests/unit/test_docs.py); here, that they are asked of a user's code."""
    (tmp_path / "asks.py").write_text(
        "import offsetstream\n"
        "tables = offsetstream.open_tables('tables')\n"
        "tables.view('lag', group='billing', partition=0).df()\n"
        "tables.view('lagg')\n"
        "tables.read('grups')\n"
    )
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--cache-dir",
        str(tmp_path / "cache"),
        "asks.py",
    ]
    # It does not follow the import hook of an editable install.
    environment = os.environ | {"MYPYPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    told = [line.partition(" error: ")[0] for line in done.stdout.splitlines() if " error: " in line]
    assert told == ["asks.py:4:", "asks.py:5:"], done.stdout


def test_every_cell_of_the_notebook_runs(tmp_path: Path) -> None:
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    typed = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    new_tables(tmp_path / "tables", GroupWorld(1).rows)
    done = type_in(tmp_path, *typed)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Tables of " in done.stdout
    assert "group-0" in done.stdout
    assert not any(cell.get("outputs") for cell in cells)
