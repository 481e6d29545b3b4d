"""The store in a catalog: a schema with our Delta tables."""

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

    from offsetstream.tables.catalog_store.commits import TableState, WriterSession, WriterSessions
    from offsetstream.tables.catalog_store.snapshot import CatalogSnapshot, CatalogSource, CatalogSpark
    from offsetstream.tables.schema import TableSchema
    from offsetstream.tables.task_rows import PackingWriter
    from offsetstream.tables.transaction import BatchId


@dataclass(frozen=True)
class CatalogStore(Store):
    """One cluster's tables in the `schema` of a `catalog`; the Spark `session` reads and writes them."""

    catalog: str
    schema: str
    session: SparkSession | None = None
    sessions: WriterSessions | None = None
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict, compare=False)  # by table: version, and bytes then
    committed: dict[str, TableState] | None = field(default=None, compare=False)  # in a job: by table, as it left it

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
        from offsetstream.tables.catalog_store.commits import WriterSessions  # noqa: PLC0415 - imports PySpark

        return replace(self, session=spark, sessions=WriterSessions(spark))

    @property
    def spark(self) -> SparkSession:
        """The session; UsageError if there is none."""
        if self.session is None:
            raise UsageError(
                f"{self.name} is a schema of a catalog, which only Spark reads: query its tables in Spark SQL, such as "
                f"{self.name}.groups, or name their folder with --tables (DESCRIBE DETAIL shows it)"
            )
        return self.session

    @property
    def check_seconds(self) -> float:
        """Ten seconds, because each check of a table is a Spark job."""
        return 10.0

    def for_job(self) -> CatalogStore:
        """Return the same tables for a job: it opens a table as its own last commit left it, without a Spark job.

        Only its next write shows another's commit.
        """
        return replace(self, committed={})

    def writer_session(self, name: str, kind: str) -> WriterSession:
        """Return a session for commits of a kind to a table only, since the stamp of a commit is a session setting."""
        assert self.spark and self.sessions  # noqa: S101 - both are set together
        return self.sessions.of(name, kind)

    def table(self, name: str) -> str:
        """Return the table's quoted name in SQL."""
        return ".".join(map(quoted, (self.catalog, self.schema, name)))

    def sql_name(self, name: str) -> str:
        """Return the table's name."""
        return self.table(name)

    def create(self, schema: TableSchema, properties: Mapping[str, str]) -> None:
        """Create a table, and the catalog's schema if it is missing."""
        from offsetstream.tables.catalog_store.create import create_table  # noqa: PLC0415 - imports PySpark

        create_table(self, schema, properties)

    def open(self, name: str) -> CatalogSnapshot:
        """Open the table at its current version; NoTableError if it does not exist."""
        from offsetstream.tables.catalog_store.snapshot import CatalogSnapshot  # noqa: PLC0415 - imports PySpark

        assert self.spark  # noqa: S101 - raises UsageError without a session
        return CatalogSnapshot(self, name)

    def source(self, name: str) -> CatalogSource:
        """Open the table at its current version for DuckDB; NoTableError if it does not exist."""
        from offsetstream.tables.catalog_store.snapshot import CatalogSource  # noqa: PLC0415 - imports PySpark

        return CatalogSource(self.open(name))

    def in_spark(self, spark: SparkSession) -> CatalogSpark:
        """Return the tables for Spark."""
        from offsetstream.tables.catalog_store.snapshot import CatalogSpark  # noqa: PLC0415 - imports PySpark

        return CatalogSpark(self if self.session is spark else self.read_by(spark))

    def task_writer(self, name: str, batch: BatchId, day: date) -> PackingWriter:
        """Return a writer that packs the rows: only Spark may write to a catalog."""
        from offsetstream.tables.task_rows import PackingWriter  # noqa: PLC0415 - no look-up needs it

        return PackingWriter(name, batch, day)
