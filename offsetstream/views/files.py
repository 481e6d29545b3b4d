"""The views as data. Each view has a file in `sql/` in Spark SQL, and next to it sqlglot's translation for DuckDB.

A file starts with comments: the meaning of a row, then a line for each column. `-- @include x` inserts `x.inc.sql`,
which several files share. The first line of the translation names the tables and views that it reads.
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
    names = [entry.name.removesuffix(".sql") for entry in _folder().iterdir() if re.fullmatch(r"\w+\.sql", entry.name)]
    views = {name: _view(name) for name in sorted(names)}
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


def spark_sql(name: str) -> str:
    """Return the Spark query of a file: without the comments at its top, with its includes."""
    return _INCLUDE.sub(lambda found: _body(f"{found[1]}.inc.sql"), _body(f"{name}.sql"))


def _view(name: str) -> View:
    comments = [line for line in _read(f"{name}.sql").split("\n") if line.startswith("--")]
    columns = [ViewColumn(*found.groups()) for line in comments if (found := _COLUMN.fullmatch(line))]
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
    """Return the text after the comments at the top."""
    return re.sub(r"\A(--.*\n)+", "", _read(file))


def _read(file: str) -> str:
    return (_folder() / file).read_text("utf-8")


def _folder() -> resources.abc.Traversable:
    return resources.files("offsetstream.views") / "sql"
