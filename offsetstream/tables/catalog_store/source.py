"""A table of a catalog for DuckDB; Spark reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from offsetstream.tables.store import Source

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

    from offsetstream.tables.catalog_store.snapshot import CatalogSnapshot


class CatalogSource(Source):
    """A table at the version that was opened."""

    def __init__(self, table: CatalogSnapshot) -> None:
        self._table = table
        self.where = table.where

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self._table.properties

    def relation(self, connection: DuckDBPyConnection) -> DuckDBPyRelation | None:
        """Return the rows; None if the table is empty."""
        if not self._table.files_and_bytes[0]:
            return None
        return connection.from_arrow(self._table.query("SELECT * FROM rows"))

    @property
    def is_read_once(self) -> bool:
        """True: Spark returns the rows as a stream."""
        return True
