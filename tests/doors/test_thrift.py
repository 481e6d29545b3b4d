"""Spark's Thrift server over the tables and views, queried by beeline and PyHive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import THRESHOLDS, all_schemas
from offsetstream.tables.small_tables import read_rows
from offsetstream.views.files import all_views
from testkit.processes import offsetstream
from tests.doors.thrift import DATABASE, by_beeline, by_pyhive, thrift_server

pytestmark = pytest.mark.nightly

TABLES = all_schemas() | {THRESHOLDS.name: THRESHOLDS}
VIEWS = {name: view for name, view in all_views().items() if not view.is_at}
# Views whose rows depend on the tables only, and equal DuckDB's.
LAG = "SELECT group_id, topic, partition, lag FROM lag ORDER BY 1, 2, 3"


@pytest.fixture(scope="module")
def port(night: Path) -> Iterator[int]:
    with thrift_server(night) as port:
        yield port


def test_each_table_has_its_rows(port: int, night: Path) -> None:
    wanted = {name: len(read_rows(PathStore(str(night)).open(name))) for name in TABLES}
    assert sum(wanted.values()) > 1_000
    union = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name}" for name in TABLES)  # noqa: S608
    assert dict(by_pyhive(port, union)[0]) == wanted
    assert {name: int(count) for name, count in by_beeline(port, "-e", union)} == wanted


def test_each_view_answers(port: int, night: Path) -> None:
    found = {row[1] for row in by_pyhive(port, f"SHOW VIEWS IN {DATABASE}")[0]}
    assert found == VIEWS.keys()
    answers = by_pyhive(port, *(f"SELECT * FROM {name} LIMIT 5" for name in VIEWS))  # noqa: S608
    for rows, view in zip(answers, VIEWS.values(), strict=True):
        assert all(len(row) == len(view.columns) for row in rows), view.name
    assert sum(map(bool, answers)) > len(VIEWS) / 2
    lag = by_pyhive(port, LAG)[0]
    assert [["" if cell is None else str(cell) for cell in row] for row in lag] == [
        ["" if cell == "NULL" else cell for cell in row] for row in by_beeline(port, "-e", LAG)
    ]
    sql = offsetstream("sql", LAG, "--tables", str(night), "--output", "json")
    assert len(lag) == sql.stdout.count('"group_id"') > 50


def test_each_column_has_its_comment(port: int) -> None:
    """Except for thresholds, a table of the user's."""
    told = {name: [(c.name, c.comment) for c in schema.columns] for name, schema in (all_schemas() | VIEWS).items()}
    answers = by_pyhive(port, *(f"DESCRIBE {name}" for name in told))
    for (name, wanted), rows in zip(told.items(), answers, strict=True):
        assert [(row[0], row[2]) for row in rows][: len(wanted)] == wanted, name
    groups = [(row[0], row[2]) for row in by_beeline(port, "-e", "DESCRIBE groups")]
    assert groups[: len(told["groups"])] == told["groups"]


def test_the_script_registers_the_views_on_another_server(port: int, night: Path, tmp_path: Path) -> None:
    script = tmp_path / "register.sql"
    script.write_text(offsetstream("views", "script", "--tables", str(night), "--database", "again").stdout)
    by_beeline(port, "-f", str(script))
    found = {row[1] for row in by_pyhive(port, "SHOW TABLES IN again")[0]}
    assert found == TABLES.keys() | VIEWS.keys()
    assert by_pyhive(port, "SELECT count(*) FROM again.lag")[0] == by_pyhive(port, "SELECT count(*) FROM lag")[0]


def test_tables_that_cannot_be_served_are_a_one_line_error(port: int, night: Path, tmp_path: Path) -> None:
    taken = offsetstream("views", "serve", "--tables", str(night), "--port", str(port))
    assert (taken.returncode, taken.stderr.count("\n"), f"port {port} " in taken.stderr) == (1, 1, True)
    none = offsetstream("views", "serve", "--tables", str(tmp_path / "nothing"))
    assert (none.returncode, none.stderr.count("\n"), "nothing" in none.stderr) == (1, 1, True)
