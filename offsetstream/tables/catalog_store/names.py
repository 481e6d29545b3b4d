"""Properties as Spark SQL's statements have them."""

from __future__ import annotations

from offsetstream.tables.sql import literal


def options_of(properties: dict[str, str]) -> str:
    """Return properties as TBLPROPERTIES takes them."""
    return f"({', '.join(f'{literal(name)} = {literal(value)}' for name, value in properties.items())})"
