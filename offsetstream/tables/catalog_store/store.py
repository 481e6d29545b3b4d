"""The store in a catalog: a schema with our Delta tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from offsetstream.errors import UsageError
from offsetstream.tables.schema import TableSchema
from offsetstream.tables.sql import quoted
from offsetstream.tables.store import Snapshot, SparkTables, Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from offsetstream.tables.catalog_store.commits import CatalogTables
    from offsetstream.tables.catalog_store.snapshot import CatalogFiles, CatalogSnapshot, CatalogSource
    from offsetstream.tables.task_rows import PackingWriter


@dataclass(frozen=True)
class CatalogStore(Store):
    """One cluster's tables in the `schema` of a `catalog`; a Spark session reads and writes them (`read_by`)."""

    catalog: str
    schema: str
    _tables: CatalogTables | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The name as catalog.schema."""
        return f"{self.catalog}.{self.schema}"

    @property
    def needs_spark(self) -> bool:
        """True: only Spark can read a catalog's tables."""
        return True

    def read_by(self, spark: SparkSession) -> CatalogStore:
        """Return the same tables with this session."""
        from offsetstream.tables.catalog_store.commits import CatalogTables, WriterSessions  # noqa: PLC0415 - of PySpark

        return replace(self, _tables=CatalogTables((self.catalog, self.schema), spark, WriterSessions(spark)))

    @property
    def tables(self) -> CatalogTables:
        """The tables in the session; UsageError if there is none."""
        if self._tables is None:
            raise UsageError(
                f"{self.name} is a schema of a catalog, which only Spark reads: query its tables in Spark SQL, such as "
                f"{self.name}.groups, or name their folder with --tables (DESCRIBE DETAIL shows it)"
            )
        return self._tables

    @property
    def check_seconds(self) -> float:
        """Ten seconds, because each check of a table is a Spark job."""
        return 10.0

    def for_job(self) -> CatalogStore:
        """Return the same tables for a job: it opens a table as its own last commit left it, without a Spark job.

        Only its next write shows another's commit.
        """
        return replace(self, _tables=replace(self.tables, committed={}))

    def sql_name(self, name: str) -> str:
        """Return the table's quoted name."""
        return ".".join(map(quoted, (self.catalog, self.schema, name)))

    def create(self, schema: TableSchema, properties: Mapping[str, str]) -> None:
        """Create a table, and the catalog's schema if it is missing."""
        from offsetstream.tables.catalog_store.snapshot import create_table  # noqa: PLC0415 - imports PySpark

        create_table(self.tables, schema, properties)

    def open(self, name: str) -> CatalogSnapshot:
        """Open the table at its current version; NoTableError if it does not exist."""
        from offsetstream.tables.catalog_store.snapshot import CatalogSnapshot  # noqa: PLC0415 - imports PySpark

        return CatalogSnapshot(self.tables, name)

    def source(self, name: str) -> CatalogSource:
        """Open the table at its current version for DuckDB; NoTableError if it does not exist."""
        from offsetstream.tables.catalog_store.snapshot import CatalogSource  # noqa: PLC0415 - imports PySpark

        return CatalogSource(self.open(name))

    def files(self, table: Snapshot) -> CatalogFiles:
        """Return the files of an opened table, as far as SQL shows them."""
        from offsetstream.tables.catalog_store.snapshot import CatalogFiles, CatalogSnapshot  # noqa: PLC0415 - of PySpark

        assert isinstance(table, CatalogSnapshot)  # noqa: S101 - of this store
        return CatalogFiles(table)

    def in_spark(self, spark: SparkSession) -> CatalogSpark:
        """Return the tables for Spark."""
        return CatalogSpark(self, spark)

    def task_writer(self, name: str, signature: Mapping[str, Any]) -> PackingWriter:
        """Return a writer that packs the rows: only Spark may write to a catalog."""
        from offsetstream.tables.task_rows import PackingWriter  # noqa: PLC0415 - no look-up needs it

        return PackingWriter(name, signature)


class CatalogSpark(SparkTables):
    """The tables of a catalog store for a Spark session."""

    def __init__(self, store: CatalogStore, spark: SparkSession) -> None:
        self._store = store
        self._spark = spark

    def require_reachable(self) -> None:
        """Do nothing: the session has already read the lease."""

    def frame(self, name: str) -> DataFrame:
        """Return the table's current rows."""
        from offsetstream.tables.catalog_store.errors import translated_errors  # noqa: PLC0415 - imports PySpark

        with translated_errors(f"{self._store.name}.{name}"):
            return self._spark.table(self._store.sql_name(name))
