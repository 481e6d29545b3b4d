"""The views as data. Each view has a file in `sql/`, in the SQL that Spark and DuckDB share.

A file starts with comments: the meaning of a row, then a line for each column. `-- @include x` inserts `x.inc.sql`,
which several files share. `_OF_DUCKDB` has the few words that DuckDB spells otherwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from offsetstream.views.verdicts import VERDICTS_FILE, verdicts_sql

_COLUMN = re.compile(r"--   (\w+) ([A-Z]+): (.+)")
_INCLUDE = re.compile(r"^-- @include (\w+)\n", re.MULTILINE)
_HELPER = "Helper: "
# What DuckDB spells otherwise. Each pattern begins with a literal, since all views are read at each start.
_OF_DUCKDB = (
    (re.compile(r"unix_micros\("), "epoch_us("),
    (re.compile(r" div "), " // "),
    (re.compile(r"CAST\("), "TRY_CAST("),
    (re.compile(r":at\b"), "$at"),
    (re.compile(r"AS TIMESTAMP\)"), "AS TIMESTAMPTZ)"),
    (re.compile(r"last_value\((.*?)\) IGNORE NULLS\b"), r"last_value(\1 IGNORE NULLS)"),
    (re.compile(r"\) WITHIN GROUP \(\s*ORDER BY"), " ORDER BY"),
)
_COMMENT, _FROM, _JOIN = re.compile("--.*"), re.compile(r"FROM (?<!DISTINCT FROM )(\w+)"), re.compile(r"JOIN (\w+)")


@dataclass(frozen=True)
class ViewColumn:
    """A column: its name, Spark SQL type and meaning."""

    name: str
    type: str
    comment: str


@dataclass(frozen=True)
class View:
    """A view: the meaning of a row, its columns, its SQL for both engines, and the tables and views that it reads.

    A view at an instant has the parameter `:at` (`$at` in DuckDB). A helper serves other views only.
    """

    name: str
    comment: str
    columns: tuple[ViewColumn, ...]
    spark_sql: str
    duckdb_sql: str
    reads: tuple[str, ...]
    is_helper: bool

    @property
    def is_at(self) -> bool:
        """Return whether the view has the parameter `:at`."""
        return ":at" in self.spark_sql

    @property
    def column_names(self) -> tuple[str, ...]:
        """Return the column names in order."""
        return tuple(column.name for column in self.columns)


@cache
def all_views() -> dict[str, View]:
    """Return every view by name, each after those that it reads."""
    files = [entry.name for entry in _folder().iterdir() if re.fullmatch(r"\w+\.sql", entry.name)]
    views = {file.removesuffix(".sql"): _view(file.removesuffix(".sql")) for file in sorted([*files, VERDICTS_FILE])}
    ordered: dict[str, View] = {}
    while waiting := [view for name, view in views.items() if name not in ordered]:
        ordered |= {view.name: view for view in waiting if not (set(view.reads) & views.keys()) - ordered.keys()}
    return ordered


def load_view(name: str) -> View:
    """Return the view. Raises KeyError for an unknown name."""
    return all_views()[name]


def needed(name: str) -> list[View]:
    """Return the views that a view reads, directly or not, and the view itself last, in order of definition."""
    views, wanted, open_ = all_views(), set[str](), [name]
    while open_:
        wanted.add(view := open_.pop())
        open_ += [each for each in views[view].reads if each in views and each not in wanted]
    return [view for view in views.values() if view.name in wanted]


def for_duckdb(sql: str) -> str:
    """Return a view's query as DuckDB spells it."""
    for words, other in _OF_DUCKDB:
        sql = words.sub(other, sql)
    return sql


def _view(name: str) -> View:
    text = _read(f"{name}.sql")
    comments = [line for line in text.split("\n") if line.startswith("--")]
    columns = [ViewColumn(*found.groups()) for line in comments if (found := _COLUMN.fullmatch(line))]
    head = text.partition("\n--\n")[0]
    comment = " ".join(line.removeprefix("-- ") for line in head.split("\n"))
    sql = _INCLUDE.sub(lambda found: _body(_read(f"{found[1]}.inc.sql")), _body(text))
    return View(
        name,
        comment.removeprefix(_HELPER),
        tuple(columns),
        spark_sql=sql,
        duckdb_sql=for_duckdb(sql),
        reads=_reads(sql),
        is_helper=comment.startswith(_HELPER),
    )


def _reads(sql: str) -> tuple[str, ...]:
    """Return the tables and views that a query reads."""
    code = _COMMENT.sub("", sql)
    named = {before.split()[-1] for before in code.split(" AS (")[:-1]}
    return tuple(sorted({*_FROM.findall(code), *_JOIN.findall(code)} - named))


def _body(text: str) -> str:
    """Return the text after the comments at the top."""
    return re.sub(r"\A(--.*\n)+", "", text)


def _read(file: str) -> str:
    return verdicts_sql() if file == VERDICTS_FILE else (_folder() / file).read_text("utf-8")


def _folder() -> resources.abc.Traversable:
    return resources.files("offsetstream.views") / "sql"
