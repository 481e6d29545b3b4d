"""Literals and conditions of SQL that DataFusion (in delta-rs) and Spark read alike, and names of Spark's."""

from __future__ import annotations

from collections.abc import Iterable


def sql_text(text: str) -> str:
    """Return the text as a literal: of what either escapes in its own way, the bytes.

    Spark puts a variable's value in the place of its name, as of `${env:HOME}`, also within a literal.
    """
    return f"CAST(X'{text.encode().hex()}' AS STRING)" if set(text) & {"'", "\\", "$"} else f"'{text}'"


def quoted(name: str) -> str:
    """Return a name, of a column or a table and whatever is in it, as Spark's SQL has it."""
    return "`" + name.replace("`", 2 * "`") + "`"


def literal(text: str) -> str:
    """Return a text as a literal where no expression may stand: in comments and properties."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def of_partitions(partitions: Iterable[int]) -> str:
    """Return the condition that a row is of one of the offsets partitions."""
    return f"offsets_partition IN ({', '.join(map(str, partitions)) or 'NULL'})"
