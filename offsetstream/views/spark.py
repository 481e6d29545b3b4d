"""The views in a catalog of Spark's that lasts, for SQL and BI, each after those that it reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from offsetstream.errors import UsageError
from offsetstream.tables.beside import THRESHOLDS
from offsetstream.tables.sql import literal, quoted
from offsetstream.tables.store import Store
from offsetstream.views.files import View, all_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_SPARK = "spark_catalog"


def statements(store: Store, database: str) -> Iterator[str]:
    """Yield what makes the views in a `schema` or `catalog.schema`; a view at an instant is none of a catalog."""
    for view in _lasting_views():
        yield _statement(view, store, place_of(database))


def create_views(store: Store, database: str, spark: SparkSession) -> list[str]:
    """Make the views anew in a database, which is made if it is missing, and the user's empty table if that is.

    Returns their names. Raises UsageError where the session's catalog ends with it, and whatever Spark raises.
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
    """Return a `schema` or `catalog.schema` as Spark's SQL has it."""
    return ".".join(map(quoted, database.split(".")))


def _require_lasting(database: str, spark: SparkSession) -> None:
    catalog = database.split(".", maxsplit=1)[0] if "." in database else spark.catalog.currentCatalog()
    if catalog == _OF_SPARK and spark.conf.get("spark.sql.catalogImplementation") == "in-memory":
        raise UsageError(
            "this session's catalog is in memory, and a view there ends with the command: name one that lasts, such as "
            "Hive's metastore (--conf spark.sql.catalogImplementation=hive --conf spark.hadoop.hive.metastore.uris=...)"
        )


def _statement(view: View, store: Store, place: str) -> str:
    views = all_views()
    names = {name: f"{place}.{quoted(name)}" if name in views else store.sql_name(name) for name in view.reads}
    # Tables by the names that the file has for them.
    sources = ",\n".join(f"{quoted(name)} AS (TABLE {source})" for name, source in names.items())
    query = f"WITH {sources}\nSELECT * FROM (\n{view.spark_sql}\n)" if sources else view.spark_sql
    columns = ", ".join(f"{quoted(column.name)} COMMENT {literal(column.comment)}" for column in view.columns)
    head = f"CREATE OR REPLACE VIEW {place}.{quoted(view.name)} ({columns}) COMMENT {literal(view.comment)}"
    return f"{head} AS\n{query}"
