"""Tables of a catalog for reads and writes by Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from offsetstream.errors import ConflictError, NoTableError, TablesError
from offsetstream.tables.catalog_store import writes
from offsetstream.tables.catalog_store.errors import translated_errors
from offsetstream.tables.catalog_store.store import CatalogStore
from offsetstream.tables.schema import load_schema
from offsetstream.tables.spark_rows import replacing_rows
from offsetstream.tables.store import SparkTables, Transaction
from offsetstream.tables.transaction import is_made


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

    def append(self, name: str, rows: DataFrame, transaction: Transaction) -> None:
        """Append rows with all of our columns; skip this if the table already has the transaction."""
        table = self._store.open(name)
        if not is_made(table, transaction):
            users = [field for field in table.frame.schema if field.name not in rows.columns]
            missing = {field.name: F.lit(None).cast(field.dataType) for field in users}
            with _original_errors():
                writes.append(table, rows.withColumns(missing) if missing else rows, [transaction])

    def replace(self, name: str, rows: DataFrame, where: str, transaction: Transaction) -> None:
        """Replace all rows that match the condition; skip this if the table already has the transaction."""
        table = self._store.open(name)
        if not is_made(table, transaction):
            with _original_errors():
                complete = replacing_rows(table.frame, rows, where, load_schema(name))
                writes.replace(table, where, complete, [transaction])


@contextmanager
def _original_errors() -> Iterator[None]:
    """Raise Spark's own error unless it is a conflict or a missing table: most errors come from the rows' source."""
    try:
        yield
    except TablesError as error:
        if isinstance(error, ConflictError | NoTableError) or error.__cause__ is None:
            raise
        raise error.__cause__ from None
