"""Format properties for Spark SQL."""

from __future__ import annotations

from offsetstream.tables.sql import literal


def options_of(properties: dict[str, str]) -> str:
    """Return properties as the SQL after TBLPROPERTIES."""
    return f"({', '.join(f'{literal(name)} = {literal(value)}' for name, value in properties.items())})"
