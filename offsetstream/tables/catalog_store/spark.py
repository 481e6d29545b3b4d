"""Tables of a catalog for what Spark itself reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from offsetstream.errors import ConflictError, NoTableError, TablesError
from offsetstream.tables.catalog_store import writes
from offsetstream.tables.catalog_store.errors import told
from offsetstream.tables.catalog_store.store import CatalogStore
from offsetstream.tables.merge import Merge
from offsetstream.tables.store import SparkTables, Transaction
from offsetstream.tables.transaction import is_made


class CatalogSpark(SparkTables):
    """The tables of a catalog store for its session."""

    def __init__(self, store: CatalogStore) -> None:
        self._store = store

    def require_reachable(self) -> None:
        """Nothing is asked: the session has read the lease by itself."""

    def frame(self, name: str) -> DataFrame:
        """Return the table's present rows."""
        with told(f"{self._store.name}.{name}"):
            return self._store.spark.table(self._store.table(name))

    def append(self, name: str, rows: DataFrame, transaction: Transaction) -> None:
        """Append rows that have all of our columns; skipped if the transaction was made before."""
        table = self._store.open(name)
        if not is_made(table, transaction):
            users = [field for field in table.frame.schema if field.name not in rows.columns]
            missing = {field.name: F.lit(None).cast(field.dataType) for field in users}
            with _others_untold():
                writes.append(table, rows.withColumns(missing) if missing else rows, [transaction])

    def merge(self, source: DataFrame, merge: Merge, transaction: Transaction) -> None:
        """Merge a DataFrame with our columns and `_deleted`; skipped if the transaction was made before."""
        table = self._store.open(merge.schema.name)
        if not is_made(table, transaction):
            with _others_untold():
                writes.merge_frame(table, source, merge, transaction)


@contextmanager
def _others_untold() -> Iterator[None]:
    """Raise what is no matter of the table as Spark raised it: most of it is of where the rows come from."""
    try:
        yield
    except TablesError as error:
        if isinstance(error, ConflictError | NoTableError) or error.__cause__ is None:
            raise
        raise error.__cause__ from None
