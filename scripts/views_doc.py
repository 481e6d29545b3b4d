"""Write docs/reference/views.md, and the names for type checkers, from the views' files (`make docs`).

The example rows come from a made-up cluster (testkit).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from offsetstream.tables.schema import (  # noqa: E402 - the package may be installed without its tests' kit
    OPTIONAL_TABLES,
    TableSchema,
    all_schemas,
)
from offsetstream.views.files import View, all_views  # noqa: E402
from offsetstream.views.reader import ViewReader  # noqa: E402
from testkit.group_world import GroupWorld  # noqa: E402
from testkit.sampled_logs import instant  # noqa: E402
from testkit.tables import reader_of, write_tables  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "views.md"
NAMES = ROOT / "offsetstream" / "names.py"
_SEED = 1
_HEAD = """# Views

Every view over the [tables](tables.md), with its columns and the meaning of each [verdict](#verdicts). Read them by
`offsetstream sql`, in Python by `offsetstream.open_tables(…).view("lag")`, in Spark by `offsetstream views create`.

A view answers for now. A view marked `:at` needs a time: `sql --at 10m`. A group that a change of the partition count
left in another offsets partition does not count. The example rows come from a made-up cluster. `make docs` writes this
page from `offsetstream/views/sql/`.
"""


def views_page() -> str:
    """Return the page: a list of all views, then the columns of each, then the tables that users may add."""
    views = sorted((view for view in all_views().values() if not view.is_helper), key=lambda view: view.name)
    world = GroupWorld(_SEED)
    with TemporaryDirectory() as folder:
        reader = reader_of(write_tables(Path(folder), world.rows), instant(world.now_ms))
        sections = [line for view in views for line in _view(view, reader, world.now_ms)]
    return (
        "\n".join(
            [
                _HEAD,
                *_overview(views),
                *sections,
                *(line for schema in OPTIONAL_TABLES.values() for line in _optional_table(schema)),
            ]
        )
        + "\n"
    )


def names_module() -> str:
    """Return the module with the names of tables and views as types."""
    tables = sorted([*all_schemas(), *OPTIONAL_TABLES])
    views = sorted(view.name for view in all_views().values() if not view.is_helper)
    return "\n".join(
        (
            '"""The names of tables and views, for type checkers and editors; made by `make docs`."""',
            "",
            "from typing import Literal, TypeAlias",
            "",
            *_literal("TableName", tables),
            *_literal("ViewName", views),
            "",
        )
    )


def _literal(alias: str, names: list[str]) -> Iterator[str]:
    yield from (f"{alias}: TypeAlias = Literal[", *(f'    "{name}",' for name in names), "]")


def _overview(views: list[View]) -> Iterator[str]:
    yield from ("| view | what |", "|---|---|")
    for view in views:
        name = f"[`{view.name}`](#{view.name})" + (" at an instant" if view.is_at else "")
        yield f"| {name} | {_cell(view.comment.split('. ')[0].removesuffix('.'))} |"


def _view(view: View, reader: ViewReader, now_ms: int) -> Iterator[str]:
    example = _example(reader.rows(view.name, at=instant(now_ms - 15 * 60_000) if view.is_at else None))
    yield from ("", f"## {view.name}", "", view.comment)
    yield from ("", "| column | type | what | for example |", "|---|---|---|---|")
    for column in view.columns:
        shown = _cell(_text(example.get(column.name)))
        yield f"| `{column.name}` | {column.type} | {_cell(column.comment)} | {shown} |"
    if view.name == "verdicts":  # few enough to list them all, the worst last
        yield from ("", "| verdict | level | meaning |", "|---|---|---|")
        for row in sorted(reader.rows(view.name), key=lambda row: row["rank"]):
            yield f"| `{row['verdict']}` | {row['level']} | {_cell(row['meaning'])} |"


def _example(rows: list[dict[str, object]]) -> dict[str, object]:
    """Return the row with the fewest nulls."""
    return min(rows, key=lambda row: (sum(value is None for value in row.values()), str(row)), default={})


def _optional_table(schema: TableSchema) -> Iterator[str]:
    yield from (
        "",
        f"## The table {schema.name}",
        "",
        f"{schema.comment}. A column that it lacks is null, as is a table that is not there.",
    )
    yield from ("", "| column | type | what |", "|---|---|---|")
    for column in schema.columns:
        yield f"| `{column.name}` | {column.type} | {_cell(column.comment)} |"


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(" ", "milliseconds").removesuffix("+00:00")
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(views_page(), encoding="utf-8")
    NAMES.write_text(names_module(), encoding="utf-8")
