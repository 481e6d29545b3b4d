"""Texts as Spark SQL's statements have them."""

from __future__ import annotations


def literal(text: str) -> str:
    """Return a text as a literal where no expression may stand: in comments and properties."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def options_of(properties: dict[str, str]) -> str:
    """Return properties as TBLPROPERTIES takes them."""
    return f"({', '.join(f'{literal(name)} = {literal(value)}' for name, value in properties.items())})"
