"""Tables of a catalog for reads by Spark."""

from __future__ import annotations

from pyspark.sql import DataFrame

from offsetstream.tables.catalog_store.errors import translated_errors
from offsetstream.tables.catalog_store.store import CatalogStore
from offsetstream.tables.store import SparkTables


class CatalogSpark(SparkTables):
    """The tables of a catalog store, in its session."""

    def __init__(self, store: CatalogStore) -> None:
        self._store = store

    def require_reachable(self) -> None:
        """Do nothing: the session has already read the lease."""

    def frame(self, name: str) -> DataFrame:
        """Return the table's current rows."""
        with translated_errors(f"{self._store.name}.{name}"):
            return self._store.spark.table(self._store.table(name))
