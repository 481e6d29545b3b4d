"""Write docs/reference/tables.md from the tables' schemas (`make docs`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from offsetstream.tables.schema import TableSchema, all_joins, all_schemas

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "tables.md"
_HEAD = """# Tables

Made from `offsetstream/tables/schemas/` by `make docs`. Timestamps are in UTC, with microseconds. Columns that end in
`_ms` are milliseconds since 1970: they also hold times that a timestamp cannot. The job updates state tables; it
appends to history tables, which are partitioned by `written_day`.

Each table has Delta's reader version 1 and writer version 2, and no table feature, so every Delta reader can read it.
This is also true in a catalog whose session or workspace turns on deletion vectors, row tracking, column mapping,
in-commit timestamps, type widening, the change data feed, v2 checkpoints or a newer protocol for new tables.
"""


def tables_page() -> str:
    """Return the page: a list of all tables, then the columns of each."""
    schemas = sorted(all_schemas().values(), key=lambda schema: (schema.kind != "state", schema.internal, schema.name))
    return (
        "\n".join([_HEAD, *_overview(schemas), *_joins(), *(line for schema in schemas for line in _table(schema))])
        + "\n"
    )


def _overview(schemas: list[TableSchema]) -> Iterator[str]:
    yield from ("| table | kind | what |", "|---|---|---|")
    for schema in schemas:
        kind = f"{schema.kind}, internal" if schema.internal else schema.kind
        yield f"| [`{schema.name}`](#{schema.name}) | {kind} | {_cell(schema.comment)} |"


def _joins() -> Iterator[str]:
    yield from (
        "",
        "## Joins",
        "",
        "Join by columns of the same names. `one`: every row has exactly one match. `any`: none, one or many.",
    )
    yield from ("", "| rows of | join | by | matches | what you get |", "|---|---|---|---|---|")
    for join in all_joins():
        rows, columns = (", ".join(f"`{name}`" for name in names) for names in (join.rows, join.by))
        yield f"| {rows} | `{join.of}` | {columns} | {'one' if join.always else 'any'} | {_cell(join.what)} |"


def _table(schema: TableSchema) -> Iterator[str]:
    key = f" Key: {', '.join(f'`{name}`' for name in schema.key)}." if schema.key else ""
    yield from ("", f"## {schema.name}", "", f"{schema.comment}.{key}")
    yield from ("", "| column | type | what |", "|---|---|---|")
    for column in schema.columns:
        yield f"| `{column.name}` | {column.type} | {_cell(column.comment)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(tables_page(), encoding="utf-8")
