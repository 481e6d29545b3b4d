"""The view files: columns are as documented, and only what both engines compute alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from offsetstream.tables.path_store import PathStore
from offsetstream.views.files import all_views, for_duckdb, load_view, needed
from offsetstream.views.spark import statements
from testkit.group_world import GroupWorld
from testkit.sampled_logs import instant
from testkit.tables import reader_of, table_schemas, write_tables

DUCKDB_TYPES = {"VARCHAR": "STRING", "INTEGER": "INT", "TIMESTAMP WITH TIME ZONE": "TIMESTAMP"}


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


# Functions that both engines compute alike, as tests/spark/test_views.py shows for each view. Before you add one: does
# it skip or keep nulls, round, count, or order in the same way? (`max_by`, `unix_millis`, `percentile_approx`,
# `timestampdiff` and `concat` do not.) There are no arrays, structs, maps and JSON.
SHARED = {
    *("coalesce", "contains", "count", "date_trunc", "first_value", "floor", "greatest", "lag", "last_value", "lead"),
    *("least", "listagg", "max", "min", "nullif", "row_number", "sum", "unix_micros"),
}
NOT_SHARED = {
    r"QUALIFY|LATERAL|LIMIT|PIVOT|->": "only one engine has it",
    r"\bWINDOW\b|OVER \w": "a named window: its order of nulls differs from that of an inline window",
    r"(?<!:)\bat\b": "at: a keyword of DuckDB",
    r" / (?!nullif\(|CAST\(nullif\(|CAST\(\d+ AS DOUBLE\))": "a division: write nullif(x, 0), or a number",
    r"AS TIMESTAMP\b(?!\))": "write it as CAST(... AS TIMESTAMP), which is found and replaced",
}


def objections(sql: str) -> list[str]:
    """Return what the engines would compute differently in a query, as far as its text shows it."""
    code = re.sub(r"--.*|'[^']*'", "''", sql)
    found = [f"the function {name}" for name in {*re.findall(r"\b([a-z_]\w*)\(", code)} - SHARED]
    found += [why for pattern, why in NOT_SHARED.items() if re.search(pattern, code)]
    found += [
        f"WITH {name} hides the view of this name" for name in {*re.findall(r"(\w+) AS \(", code)} & {*all_views()}
    ]
    for start in re.finditer(r"CAST\(", code):
        inner, type_ = up_to_end(code[start.end() :]).rsplit(" AS ", 1)
        if type_ in ("BIGINT", "INT") and re.search(r" / | AS DOUBLE", inner):
            found.append("a cast of a DOUBLE to an integer: DuckDB rounds where Spark truncates; write div or floor")
        if type_ == "DOUBLE" and re.fullmatch(r"[\w.]*(_at|timestamp)", inner):
            found.append("a cast of a TIMESTAMP to DOUBLE: null in DuckDB; write unix_micros")
    for start in re.finditer(r"ORDER BY ", code):
        order = re.split(r"\s+(?:ROWS|RANGE)\b", up_to_end(code[start.end() :]))[0]
        for item in re.split(r",(?![^(]*\))", order):
            if not re.search(r"( DESC| NULLS FIRST| NULLS LAST)$", item.strip()):
                found.append(f"ORDER BY {item.strip()}: write NULLS FIRST, since DuckDB sorts nulls last")
    return found


def up_to_end(text: str) -> str:
    """Return the text up to the parenthesis that closes what is open at its start."""
    depth = 0
    for at, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            return text[:at]
    return text


@pytest.mark.parametrize("name", all_views())
def test_a_view_has_only_what_both_engines_compute_alike(name: str) -> None:
    assert objections(load_view(name).spark_sql) == []


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT from_json(a, 'b INT') AS c FROM t", "from_json"),
        ("SELECT concat(a, b) AS c FROM t", "concat"),
        ("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a DESC) AS b FROM t", "percentile_cont"),
        ("SELECT exists(a, x -> x > 1) AS c FROM t", "only one engine"),
        ("SELECT b FROM t, LATERAL explode(a) AS u(b)", "only one engine"),
        ("SELECT a FROM t QUALIFY row_number() OVER (ORDER BY a DESC) = 1", "only one engine"),
        ("SELECT a AS b FROM t AS at", "keyword"),
        ("SELECT CAST(t.sampled_at AS DOUBLE) AS a FROM t", "TIMESTAMP to DOUBLE"),
        ("SELECT CAST(a / 2 AS BIGINT) AS b FROM t", "rounds"),
        ("SELECT CAST(CAST(a AS DOUBLE) * b AS INT) AS c FROM t", "rounds"),
        ("SELECT lag(a) OVER w AS b FROM t WINDOW w AS (ORDER BY a DESC)", "named window"),
        (
            "SELECT row_number() OVER (PARTITION BY a ORDER BY b DESC, coalesce(c, d) ROWS 1 PRECEDING) AS e",
            "NULLS FIRST",
        ),
        ("SELECT CAST(a AS DOUBLE) / b AS c FROM t", "nullif"),
        ("WITH lag AS (SELECT 1 AS a) SELECT a FROM lag", "hides"),
    ],
)
def test_what_the_engines_compute_differently_is_found(sql: str, said: str) -> None:
    assert said in str(objections(sql))


def test_duckdb_gets_its_own_words() -> None:
    sql = (
        "SELECT unix_micros(a) div 1000 AS b, CAST(NULL AS TIMESTAMP) AS c, last_value(d) IGNORE NULLS OVER () "
        "FROM t JOIN u ON t.e IS NOT DISTINCT FROM u.e WHERE a > :at"
    )
    assert objections(sql) == []
    assert for_duckdb(sql) == (
        "SELECT epoch_us(a) // 1000 AS b, TRY_CAST(NULL AS TIMESTAMPTZ) AS c, last_value(d IGNORE NULLS) OVER () "
        "FROM t JOIN u ON t.e IS NOT DISTINCT FROM u.e WHERE a > $at"
    )


def test_each_view_fits_a_metastore_in_derby() -> None:
    """As `offsetstream views serve` has one. The place of the tables is in each query."""
    store = PathStore("abfss://a-container-of-tables@a-storage-account.dfs.core.windows.net/kafka/eu-central/tables")
    for statement in statements(store, "a_catalog.a_schema"):
        head, query = statement.split(" AS\n", 1)
        assert len(query) <= 32_700, head.split(" (")[0]
