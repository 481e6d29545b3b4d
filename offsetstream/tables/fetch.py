"""Rows of a DuckDB relation as Python has them, quickly."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from duckdb import ColumnExpression, ConstantExpression, FunctionExpression

if TYPE_CHECKING:
    import duckdb

_WITH_ZONE = "TIMESTAMP WITH TIME ZONE"


def fetch_rows(relation: duckdb.DuckDBPyRelation, order: str = "") -> list[dict[str, Any]]:
    """Return the rows by the names of their columns, in an order if one is given; instants are in UTC.

    DuckDB takes three times as long for all of them if it has to give instants their zone, so they get it here.
    """
    with _uncollected():
        return _rows(relation, order)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Have no garbage looked for: rows have none, and to go through so many again and again is a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _rows(relation: duckdb.DuckDBPyRelation, order: str) -> list[dict[str, Any]]:
    columns = relation.columns
    instants = [str(type_) == _WITH_ZONE for type_ in relation.types]
    if order:
        relation = relation.order(order)
    if not any(instants):
        return [dict(zip(columns, row, strict=True)) for row in relation.fetchall()]
    bare = [_without_zone(name) if has else ColumnExpression(name) for name, has in zip(columns, instants, strict=True)]
    rows = [dict(zip(columns, row, strict=True)) for row in relation.select(*bare).fetchall()]
    for name in (name for name, has in zip(columns, instants, strict=True) if has):
        zoned = {instant: _in_utc(instant) for instant in {row[name] for row in rows}}
        for row in rows:
            row[name] = zoned[row[name]]
    return rows


def _in_utc(instant: Any) -> Any:
    # A year that Python has no date of comes as text.
    return instant.replace(tzinfo=UTC) if isinstance(instant, datetime) else instant


def _without_zone(column: str) -> duckdb.Expression:
    return FunctionExpression("timezone", ConstantExpression("UTC"), ColumnExpression(column)).alias(column)
