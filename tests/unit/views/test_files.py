"""The view files: translations are current, columns are as documented, and wrong translations are refused."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from offsetstream.tables.path_store import PathStore
from offsetstream.views.files import all_views, needed
from offsetstream.views.spark import statements
from testkit.group_world import GroupWorld
from testkit.sampled_logs import instant
from testkit.tables import reader_of, table_schemas, write_tables

ROOT = Path(__file__).parents[3]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "views_duckdb.py"))
DUCKDB_TYPES = {"VARCHAR": "STRING", "INTEGER": "INT", "TIMESTAMP WITH TIME ZONE": "TIMESTAMP"}


def test_the_duckdb_files_are_current() -> None:
    for file, text in SCRIPT["duckdb_files"]().items():
        assert file.read_text(encoding="utf-8") == text, f"{file.name}: run 'make docs'"
    assert {file.name.split(".")[0] for file in SCRIPT["duckdb_files"]()} == set(all_views())


def test_each_view_comes_after_the_views_that_it_reads() -> None:
    seen: set[str] = set()
    for view in all_views().values():
        assert set(view.reads) <= seen | table_schemas().keys()
        seen.add(view.name)
    expected = ["clock", "end_intervals", "max_age", "freshness", "partition_ends", "time_lag"]
    assert [view.name for view in needed("time_lag")] == expected


def test_views_have_the_columns_that_they_document(tmp_path: Path) -> None:
    world = GroupWorld(1)
    reader = reader_of(write_tables(tmp_path, world.rows), instant(world.now_ms))
    for view in all_views().values():
        relation = reader.relation(view.name, at=instant(world.now_ms) if view.is_at else None)
        types = [DUCKDB_TYPES.get(str(each), str(each)) for each in relation.types]
        assert list(zip(relation.columns, types, strict=True)) == [(c.name, c.type) for c in view.columns], view.name


def test_the_command_line_needs_no_sqlglot() -> None:
    code = "import sys, offsetstream.views.reader, offsetstream.cli.main; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT from_json(a, 'b INT') AS c FROM t", "no JSON"),
        ("SELECT get_json_object(a, '$.b') AS c FROM t", "no JSON"),
        ("SELECT make_interval(0, 0, 0, 1) AS c", "make_interval"),
        ("SELECT make_dt_interval(1) AS c", "make_dt_interval"),
        ("SELECT window(ts, '1 minute') AS w FROM t", "window"),
        ("SELECT array_union(a, b) AS c FROM t", "no arrays"),
        ("SELECT exists(a, x -> x > 1) AS c FROM t", "no arrays"),
        ("SELECT b FROM t, LATERAL explode(a) AS u(b)", "no arrays"),
        ("SELECT explode(a) AS b FROM t", "no arrays"),
        ("SELECT array(1, 2) AS b", "no arrays"),
        ("SELECT named_struct('a', 1) AS b", "no structs"),
        ("SELECT timestamp_millis(a) AS b FROM t", "timestamp_millis"),
        ("SELECT pmod(a, 3) AS b FROM t", "pmod"),
        ("SELECT a AS b FROM t AS at", "alias at"),
        ("SELECT a FROM t QUALIFY row_number() OVER (ORDER BY a) = 1", "QUALIFY"),
        ("SELECT a AS at FROM t", "alias at"),
        ("SELECT CAST(sampled_at AS DOUBLE) AS a FROM t", "TIMESTAMP to DOUBLE"),
        ("SELECT format_string('%d s', a) AS b FROM t", "format"),
        ("SELECT percentile_approx(a, 0.5) AS b FROM t", "percentile_approx"),
        ("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) AS b FROM t", "percentile_cont"),
        ("SELECT CAST(a / 2 AS BIGINT) AS b FROM t", "rounds"),
        ("SELECT CAST(CAST(a AS DOUBLE) * b AS INT) AS c FROM t", "rounds"),
        ("SELECT unix_millis(a) AS b FROM t", "unix_millis"),
        ("SELECT max_by(a, b) AS c FROM t", "max_by"),
        ("SELECT min_by(a, b) AS c FROM t", "min_by"),
        ("SELECT timestampdiff(SECOND, a, b) AS c FROM t", "timestampdiff"),
        ("SELECT datediff(SECOND, a, b) AS c FROM t", "timestampdiff"),
        ("SELECT lag(a) OVER w AS b FROM t WINDOW w AS (ORDER BY a)", "named window"),
        ("WITH lag AS (SELECT 1 AS a) SELECT a FROM lag", "hides"),
    ],
)
def test_sql_that_would_be_translated_wrongly_is_refused(sql: str, said: str) -> None:
    assert any(said in objection for objection in SCRIPT["lint"](sql)), list(SCRIPT["lint"](sql))
    with pytest.raises(ValueError, match=re.escape(said)):
        SCRIPT["translated"](sql)


def test_sql_that_is_translated_correctly_is_accepted() -> None:
    sql = "SELECT unix_micros(a) div 1000 AS b, CAST(c AS BIGINT) AS d FROM t WHERE e > f - INTERVAL '1' DAY"
    assert list(SCRIPT["lint"](sql)) == []


def test_each_view_fits_a_metastore_in_derby() -> None:
    """As `offsetstream views serve` has one. The place of the tables is in each query."""
    store = PathStore("abfss://a-container-of-tables@a-storage-account.dfs.core.windows.net/kafka/eu-central/tables")
    for statement in statements(store, "a_catalog.a_schema"):
        head, query = statement.split(" AS\n", 1)
        assert len(query) <= 32_700, head.split(" (")[0]
