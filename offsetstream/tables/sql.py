"""SQL literals and conditions that DataFusion (in delta-rs) and Spark both understand, and quoted names for Spark."""

from __future__ import annotations

from collections.abc import Iterable


def sql_text(text: str) -> str:
    """Return the text as a literal; as bytes, if it has a character that one of the engines treats specially.

    Spark replaces variables such as `${env:HOME}` even inside a literal.
    """
    return f"CAST(X'{text.encode().hex()}' AS STRING)" if set(text) & {"'", "\\", "$"} else f"'{text}'"


def quoted(name: str) -> str:
    """Return any name of a column or table quoted for Spark SQL."""
    return "`" + name.replace("`", 2 * "`") + "`"


def literal(text: str) -> str:
    """Return the text as a literal for places that allow no expression: comments and properties."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def in_partitions(partitions: Iterable[int]) -> str:
    """Return the condition that a row belongs to one of the offsets partitions."""
    return f"offsets_partition IN ({', '.join(map(str, partitions)) or 'NULL'})"
