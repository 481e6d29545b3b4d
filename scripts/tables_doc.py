"""Write docs/tables.md anew from the tables' schemas (`make docs`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from offsetstream.tables.schema import TableSchema, all_schemas

PAGE = Path(__file__).parents[1] / "docs" / "tables.md"
_HEAD = """# Tables

Made from `offsetstream/tables/schemas/` by `make docs`. Timestamps are in UTC, with microseconds; `_ms` columns are
milliseconds since 1970, for what no timestamp can hold. State tables are written over, history tables appended to and
partitioned by `written_day`.
"""


def tables_page() -> str:
    """Return the page: the tables in one list, then the columns of each."""
    schemas = sorted(all_schemas().values(), key=lambda schema: (schema.kind != "state", schema.internal, schema.name))
    return "\n".join([_HEAD, *_overview(schemas), *(line for schema in schemas for line in _table(schema))]) + "\n"


def _overview(schemas: list[TableSchema]) -> Iterator[str]:
    yield from ("| table | kind | what |", "|---|---|---|")
    for schema in schemas:
        kind = f"{schema.kind}, internal" if schema.internal else schema.kind
        yield f"| [`{schema.name}`](#{schema.name}) | {kind} | {_cell(schema.comment)} |"


def _table(schema: TableSchema) -> Iterator[str]:
    yield from ("", f"## {schema.name}", "", f"{schema.comment}. Key: {', '.join(f'`{name}`' for name in schema.key)}.")
    yield from ("", "| column | type | what |", "|---|---|---|")
    for column in schema.columns:
        yield f"| `{column.name}` | {column.type} | {_cell(column.comment)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(tables_page(), encoding="utf-8")
