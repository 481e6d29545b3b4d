"""The views as data: of each its file in `sql/`, in Spark SQL, and beside it what sqlglot made of that for DuckDB.

A file begins with comments: what a row is, then a line for each column. `-- @include x` stands for `x.inc.sql`, which
several files share. The first line of the translation names the tables and views that it reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

_COLUMN = re.compile(r"--   (\w+) ([A-Z]+): (.+)")
_INCLUDE = re.compile(r"^-- @include (\w+)\n", re.MULTILINE)
_HELPER, NEEDS = "Helper: ", "-- Reads: "


@dataclass(frozen=True)
class ViewColumn:
    """A column: its name, its type in Spark SQL's words, and what it means."""

    name: str
    type: str
    comment: str


@dataclass(frozen=True)
class View:
    """A view: what one row is, its columns, its SQL for either engine, and the tables and views that it reads.

    A view `at` an instant has one parameter, `:at`, in DuckDB's SQL `$at`. A helper is there for other views.
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
        """Whether it has the parameter."""
        return ":at" in self.spark_sql

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns in their order."""
        return tuple(column.name for column in self.columns)


@cache
def all_views() -> dict[str, View]:
    """Return every view by its name, each after those that it reads."""
    names = [entry.name.removesuffix(".sql") for entry in _folder().iterdir() if re.fullmatch(r"\w+\.sql", entry.name)]
    views = {name: _view(name) for name in sorted(names)}
    ordered: dict[str, View] = {}
    while waiting := [view for name, view in views.items() if name not in ordered]:
        ordered |= {view.name: view for view in waiting if not (set(view.reads) & views.keys()) - ordered.keys()}
    return ordered


def load_view(name: str) -> View:
    """Return the view; KeyError if there is none of this name."""
    return all_views()[name]


def needed(name: str) -> list[View]:
    """Return the views that a view reads, and itself at the end, each after those that it reads."""
    views, wanted, open_ = all_views(), set[str](), [name]
    while open_:
        wanted.add(view := open_.pop())
        open_ += [each for each in views[view].reads if each in views and each not in wanted]
    return [view for view in views.values() if view.name in wanted]


def spark_sql(name: str) -> str:
    """Return the query of a file for Spark: without the comments at its top, and with what it includes."""
    return _INCLUDE.sub(lambda found: _body(f"{found[1]}.inc.sql"), _body(f"{name}.sql"))


def _view(name: str) -> View:
    told = [line for line in _read(f"{name}.sql").split("\n") if line.startswith("--")]
    columns = [ViewColumn(*found.groups()) for line in told if (found := _COLUMN.fullmatch(line))]
    head = _read(f"{name}.sql").partition("\n--\n")[0]
    comment = " ".join(line.removeprefix("-- ") for line in head.split("\n"))
    needs, _, duckdb_sql = _read(f"{name}.duckdb.sql").partition("\n")
    reads = tuple(filter(None, needs.removeprefix(NEEDS).split(", ")))
    return View(
        name,
        comment.removeprefix(_HELPER),
        tuple(columns),
        spark_sql(name),
        duckdb_sql,
        reads,
        comment.startswith(_HELPER),
    )


def _body(file: str) -> str:
    """Return what follows the comments at the top."""
    return re.sub(r"\A(--.*\n)+", "", _read(file))


def _read(file: str) -> str:
    return (_folder() / file).read_text("utf-8")


def _folder() -> resources.abc.Traversable:
    return resources.files("offsetstream.views") / "sql"
