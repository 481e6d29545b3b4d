"""SQL that registers all tables at their location, and the views over them, in a Spark catalog."""

from __future__ import annotations

from collections.abc import Iterator

from offsetstream.tables.location import in_hadoop
from offsetstream.tables.schema import OPTIONAL_TABLES, THRESHOLDS, TableSchema, all_schemas
from offsetstream.tables.sql import literal, quoted
from offsetstream.tables.store import Store
from offsetstream.views.spark import place_of, statements


def registration(store: Store, database: str) -> Iterator[str]:
    """Yield the statements that register a store's tables and views in a `schema` or `catalog.schema`.

    They create the schema if it is missing. Tables in a catalog are registered already: only views are created. Raises
    TablesError for a missing table.
    """
    place = place_of(database)
    yield f"CREATE DATABASE IF NOT EXISTS {place}"
    if not store.needs_spark:
        for schema in all_schemas().values():
            store.open(schema.name)
            yield _registered(schema, store, place)
        for schema in OPTIONAL_TABLES.values():
            if store.opened(schema.name) is not None:
                yield _registered(schema, store, place)
            elif schema is THRESHOLDS:  # views read it
                yield _registered(schema, store, place, _columns(schema))
    yield from statements(store, database)


def _registered(schema: TableSchema, store: Store, place: str, columns: str = "") -> str:
    """Return the statement for a table in the store. Delta supplies its columns and their comments."""
    where = literal(f"{in_hadoop(store.name)}/{schema.name}")
    return f"CREATE TABLE IF NOT EXISTS {place}.{quoted(schema.name)}{columns} USING delta LOCATION {where}"


def _columns(schema: TableSchema) -> str:
    told = (f"{quoted(column.name)} {column.type} COMMENT {literal(column.comment)}" for column in schema.columns)
    return f" ({', '.join(told)})"
