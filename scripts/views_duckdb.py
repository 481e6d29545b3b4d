"""Translate the views from Spark to DuckDB (`make docs`), and refuse SQL that DuckDB understands differently.

First write the view `verdicts`, from the table in offsetstream/views/verdicts.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import sqlglot
from sqlglot import exp

from offsetstream.views.files import NEEDS, spark_sql
from offsetstream.views.verdicts import verdicts_sql

FOLDER = Path(__file__).parents[1] / "offsetstream" / "views" / "sql"
VERDICTS = FOLDER / "verdicts.sql"

# A comment with these words marks a WITH that DuckDB must compute before it reads the tables joined to it.
_FIRST = "Found first"

# sqlglot translates these, but the engines return different results, or one of them has no such function.
_FORBIDDEN = {
    exp.ApproxQuantile: "percentile_approx: DuckDB's estimate differs",
    exp.ArgMax: "max_by: DuckDB skips rows whose value is null",
    exp.ArgMin: "min_by: DuckDB skips rows whose value is null",
    exp.DateDiff: "timestampdiff: DuckDB counts boundaries, not whole units",
    exp.TimestampDiff: "timestampdiff: DuckDB counts boundaries, not whole units",
    exp.UnixMillis: "unix_millis: DuckDB rounds where Spark floors; write unix_micros(x) div 1000",
    exp.Format: "format_string: DuckDB has other formats",
    exp.Explode: "explode: no arrays",
    exp.Posexplode: "posexplode: no arrays",
    exp.Lateral: "LATERAL: no arrays",
    exp.Array: "no arrays",
    exp.Struct: "no structs",
    exp.Map: "no maps",
    exp.Lambda: "no arrays",
    exp.FromJson: "no JSON",
    exp.JSONFormat: "no JSON",
    exp.MakeInterval: "make_interval: DuckDB has none",
    exp.JSONExtract: "no JSON",
    exp.JSONExtractScalar: "no JSON",
    exp.Qualify: "QUALIFY: Spark 4.0 has none",
    exp.PercentileCont: "percentile_cont: the engines round otherwise; count rows",
}
_FORBIDDEN_NAMES = {
    **dict.fromkeys(("pmod", "window", "make_dt_interval", "timestamp_millis"), "DuckDB has none"),
    **dict.fromkeys(("array_union", "sequence"), "no arrays"),
    "get_json_object": "no JSON",
    "format_string": "DuckDB has other formats",
}


def translated(sql: str) -> str:
    """Return the query for DuckDB; ValueError with all findings of `lint`."""
    if objections := list(lint(sql)):
        raise ValueError("; ".join(objections))
    tree = sqlglot.parse_one(sql, read="spark")
    for cte in tree.find_all(exp.CTE):
        if any(_FIRST in comment for comment in cte.this.comments or []):
            cte.set("materialized", True)  # Spark's SQL has no keyword for it
    return tree.sql("duckdb", pretty=True)


def lint(sql: str) -> Iterator[str]:
    """Yield a finding for each part of the query that DuckDB understands differently."""
    tree = sqlglot.parse_one(sql, read="spark")
    for node in tree.walk():
        if type(node) in _FORBIDDEN:
            yield _FORBIDDEN[type(node)]
        elif isinstance(node, exp.Anonymous) and node.name.lower() in _FORBIDDEN_NAMES:
            yield f"{node.name.lower()}: {_FORBIDDEN_NAMES[node.name.lower()]}"
        elif isinstance(node, exp.Cast):
            yield from _lint_cast(node)
        elif isinstance(node, exp.Window) and node.args.get("alias"):
            yield "a named window: its order of nulls differs from that of an inline window"
        elif isinstance(node, exp.Alias | exp.TableAlias) and "at" in (node.alias.lower(), node.name.lower()):
            yield "the alias at: a keyword of DuckDB"
    yield from _hidden_tables(tree)


def reads(sql: str) -> list[str]:
    """Return the names of the tables and views that a query reads."""
    tree = sqlglot.parse_one(sql, read="spark")
    named = {cte.alias for cte in tree.find_all(exp.CTE)}
    return sorted({table.name for table in tree.find_all(exp.Table)} - named)


def _lint_cast(cast: exp.Cast) -> Iterator[str]:
    to = cast.to.this
    inner = cast.this
    if to in (exp.DataType.Type.BIGINT, exp.DataType.Type.INT) and _may_be_double(inner):
        yield "a cast of a DOUBLE to an integer: DuckDB rounds where Spark truncates; write div"
    if (
        to == exp.DataType.Type.DOUBLE
        and isinstance(inner, exp.Column)
        and re.search(r"(_at|timestamp|^at)$", inner.name)
    ):
        yield "a cast of a TIMESTAMP to DOUBLE: null in DuckDB; write unix_micros"


def _may_be_double(node: exp.Expression) -> bool:
    return any(
        isinstance(each, exp.Div) or (isinstance(each, exp.Cast) and each.to.this == exp.DataType.Type.DOUBLE)
        for each in node.walk()
    )


def _hidden_tables(tree: exp.Expression) -> Iterator[str]:
    """Yield a finding for each WITH that has the name of a view."""
    files = {file.name.removesuffix(".sql") for file in FOLDER.glob("*.sql")}
    for cte in tree.find_all(exp.CTE):
        if cte.alias in files:
            yield f"WITH {cte.alias} hides the view of this name"


def duckdb_files() -> dict[Path, str]:
    """Return the text of each file for DuckDB."""
    texts = {}
    for file in sorted(FOLDER.glob("*.sql")):
        name = file.name.removesuffix(".sql")
        if "." not in name:
            sql = spark_sql(name)
            try:
                texts[FOLDER / f"{name}.duckdb.sql"] = f"{NEEDS}{', '.join(reads(sql))}\n{translated(sql)}\n"
            except (ValueError, sqlglot.ParseError) as error:
                raise ValueError(f"{file.name}: {error}") from error
    return texts


if __name__ == "__main__":
    VERDICTS.write_text(verdicts_sql(), encoding="utf-8")
    for path, text in duckdb_files().items():
        path.write_text(text, encoding="utf-8")
