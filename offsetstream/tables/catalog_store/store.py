"""The schema of a catalog, with one Delta table each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING

from offsetstream.errors import UsageError
from offsetstream.tables.sql import quoted
from offsetstream.tables.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from offsetstream.tables.catalog_store.sessions import WriterSessions
    from offsetstream.tables.catalog_store.snapshot import CatalogSnapshot
    from offsetstream.tables.catalog_store.source import CatalogSource
    from offsetstream.tables.catalog_store.spark import CatalogSpark
    from offsetstream.tables.schema import TableSchema
    from offsetstream.tables.transaction import BatchId


@dataclass(frozen=True)
class CatalogStore(Store):
    """One cluster's tables in a `schema` of a `catalog`; a `session` of Spark's reads and writes them."""

    catalog: str
    schema: str
    session: SparkSession | None = None
    sessions: WriterSessions | None = None
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict, compare=False)  # in bytes, at a version

    @property
    def name(self) -> str:
        """The catalog's name, a dot, and the schema's."""
        return f"{self.catalog}.{self.schema}"

    @property
    def needs_spark(self) -> bool:
        """A catalog gives its tables to Spark alone."""
        return True

    def read_by(self, spark: SparkSession) -> CatalogStore:
        """Return the same tables for a session."""
        from offsetstream.tables.catalog_store.sessions import WriterSessions  # noqa: PLC0415 - of PySpark

        return replace(self, session=spark, sessions=WriterSessions(spark))

    @property
    def spark(self) -> SparkSession:
        """The session; UsageError where there is none."""
        if self.session is None:
            raise UsageError(
                f"{self.name} is a schema of a catalog, which only Spark reads: ask its tables in Spark SQL, such as "
                f"{self.name}.groups, or name by --tables the folder where they lie (DESCRIBE DETAIL says it)"
            )
        return self.session

    @property
    def look_seconds(self) -> float:
        """Each look at a table is a job of Spark's."""
        return 10.0

    def writer_session(self, name: str) -> SparkSession:
        """Return the session of the table's own in which it is written, as what stamps a commit is in settings."""
        assert self.spark and self.sessions  # noqa: S101 - made together
        return self.sessions.of(name)

    def table(self, name: str) -> str:
        """Return the table's name as SQL has it."""
        return ".".join(map(quoted, (self.catalog, self.schema, name)))

    def sql_name(self, name: str) -> str:
        """Return the table's name."""
        return self.table(name)

    def create(self, schema: TableSchema, properties: Mapping[str, str]) -> None:
        """Create a table, and the schema of the catalog where it is missing."""
        from offsetstream.tables.catalog_store.create import create_table  # noqa: PLC0415 - of PySpark

        create_table(self, schema, properties)

    def open(self, name: str) -> CatalogSnapshot:
        """Return the table as it is now; NoTableError if there is none."""
        from offsetstream.tables.catalog_store.snapshot import CatalogSnapshot  # noqa: PLC0415 - of PySpark

        assert self.spark  # noqa: S101 - else it has said so
        return CatalogSnapshot(self, name)

    def source(self, name: str) -> CatalogSource:
        """Return the table as it is now for DuckDB; NoTableError if there is none."""
        from offsetstream.tables.catalog_store.source import CatalogSource  # noqa: PLC0415 - of PySpark

        return CatalogSource(self.open(name))

    def in_spark(self, spark: SparkSession) -> CatalogSpark:
        """Return the tables for Spark."""
        from offsetstream.tables.catalog_store.spark import CatalogSpark  # noqa: PLC0415 - of PySpark

        return CatalogSpark(self if self.session is spark else self.read_by(spark))

    def task_writer(self, name: str, batch: BatchId, day: date) -> None:
        """Return None: what a task writes is no catalog's."""
