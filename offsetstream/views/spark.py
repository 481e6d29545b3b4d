"""SQL that registers tables in a Spark catalog, and creates the views there, each after those that it reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from offsetstream.errors import UsageError
from offsetstream.settings.places import in_hadoop
from offsetstream.tables.schema import OPTIONAL_TABLES, THRESHOLDS, TableSchema, all_schemas
from offsetstream.tables.sql import literal, quoted
from offsetstream.tables.store import Store
from offsetstream.views.files import View, all_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    return f" ({schema.columns_sql})"


_OF_SPARK = "spark_catalog"


def statements(store: Store, database: str) -> Iterator[str]:
    """Yield the statements that create the views in a `schema` or `catalog.schema`, without views at an instant."""
    for view in _lasting_views():
        yield _statement(view, store, place_of(database))


def create_views(store: Store, database: str, spark: SparkSession) -> list[str]:
    """Create or replace the views in a database. Creates the database and an empty table `thresholds` if missing.

    Returns the view names. Raises UsageError if the session's catalog is not persistent, and whatever Spark raises.
    """
    _require_lasting(database, spark)
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {place_of(database)}")
    if store.opened(THRESHOLDS.name) is None:
        store.create(THRESHOLDS, {})
    for statement in statements(store, database):
        spark.sql(statement)
    return [view.name for view in _lasting_views()]


def _lasting_views() -> list[View]:
    return [view for view in all_views().values() if not view.is_at]


def place_of(database: str) -> str:
    """Return a `schema` or `catalog.schema` quoted for Spark SQL."""
    return ".".join(map(quoted, database.split(".")))


def _require_lasting(database: str, spark: SparkSession) -> None:
    catalog = database.split(".", maxsplit=1)[0] if "." in database else spark.catalog.currentCatalog()
    if catalog == _OF_SPARK and spark.conf.get("spark.sql.catalogImplementation") == "in-memory":
        raise UsageError(
            "this session's catalog is in memory, so views end with the command: use a persistent one, such as "
            "Hive's metastore (--conf spark.sql.catalogImplementation=hive --conf spark.hadoop.hive.metastore.uris=...)"
        )


def _statement(view: View, store: Store, place: str) -> str:
    views = all_views()
    names = {name: f"{place}.{quoted(name)}" if name in views else store.sql_name(name) for name in view.reads}
    # Tables under the names that the view's file uses.
    sources = ",\n".join(f"{quoted(name)} AS (TABLE {source})" for name, source in names.items())
    # Without comments and indentation: Hive's metastore in Derby takes up to 32,700 characters.
    lines = (line.strip() for line in view.spark_sql.splitlines())
    own = "\n".join(line for line in lines if line and not line.startswith("--"))
    query = f"WITH {sources}\nSELECT * FROM (\n{own}\n)" if sources else own
    columns = ", ".join(f"{quoted(column.name)} COMMENT {literal(column.comment)}" for column in view.columns)
    head = f"CREATE OR REPLACE VIEW {place}.{quoted(view.name)} ({columns}) COMMENT {literal(view.comment)}"
    return f"{head} AS\n{query}"
