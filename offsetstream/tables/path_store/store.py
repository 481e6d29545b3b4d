"""The folder of the tables, local or of any store that Spark and delta-rs both reach, with one Delta table each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING
from urllib.parse import unquote

from deltalake import DeltaTable, QueryBuilder

from offsetstream.tables.path_store.errors import told
from offsetstream.tables.schema import HISTORY_DAY
from offsetstream.tables.sql import quoted
from offsetstream.tables.store import Source, Store

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from pyspark.sql import SparkSession

    from offsetstream.tables.path_store.snapshot import PathSnapshot
    from offsetstream.tables.path_store.spark import PathSpark
    from offsetstream.tables.path_store.task_files import HistoryWriter
    from offsetstream.tables.schema import TableSchema
    from offsetstream.tables.transaction import BatchId

_DAY = f"TRY_CAST(regexp_extract(filename, '/{HISTORY_DAY}=([^/]+)/[^/]+$', 1) AS DATE) AS {HISTORY_DAY}"
_GLOB = re.compile(r"[*?\[]")
_LOOK_SECONDS = 12.0  # a store asks money for each request: so an idle job makes no thirty of them a minute


@dataclass(frozen=True)
class PathStore(Store):
    """One cluster's tables in a folder; `root` is its path or URI, without a slash at its end."""

    root: str

    @property
    def name(self) -> str:
        """The folder."""
        return self.root

    @property
    def look_seconds(self) -> float:
        """None on a disk."""
        return _LOOK_SECONDS if "://" in self.root else 0.0

    def table(self, name: str) -> str:
        """Return the path or URI of the table `name`."""
        return f"{self.root}/{name}"

    def create(self, schema: TableSchema, properties: Mapping[str, str]) -> None:
        """Create a table by delta-rs, which takes milliseconds for what takes Spark ten seconds, and needs no JVM."""
        from offsetstream.tables.path_store.snapshot import create_table  # noqa: PLC0415 - no look-up needs it

        create_table(self.table(schema.name), schema, properties)

    def open(self, name: str) -> PathSnapshot:
        """Return the table as it is now; NoTableError if there is none."""
        from offsetstream.tables.path_store.snapshot import PathSnapshot  # noqa: PLC0415 - no look-up needs it

        with told(self.table(name)):
            return PathSnapshot(DeltaTable(self.table(name)), name)

    def sql_name(self, name: str) -> str:
        """Return the table's path, as Delta reads it."""
        from offsetstream.tables.location import in_hadoop  # noqa: PLC0415 - which imports this

        return f"delta.{quoted(in_hadoop(self.table(name)))}"

    def in_spark(self, spark: SparkSession) -> PathSpark:
        """Return the tables for Spark."""
        from offsetstream.tables.path_store.spark import PathSpark  # noqa: PLC0415 - who has a session has PySpark

        return PathSpark(self, spark)

    def task_writer(self, name: str, batch: BatchId, day: date) -> HistoryWriter:
        """Return what writes a file of rows in a task."""
        from offsetstream.tables.path_store.task_files import HistoryWriter  # noqa: PLC0415 - no look-up needs it

        return HistoryWriter(self.table(name), name, batch, day)

    def source(self, name: str) -> PathSource:
        """Return the table as it is now for DuckDB; NoTableError if there is none."""
        with told(self.table(name)):
            return PathSource(DeltaTable(self.table(name)), self.table(name))


class PathSource(Source):
    """A table whose files delta-rs finds, and DuckDB reads by itself where it can."""

    def __init__(self, delta: DeltaTable, where: str) -> None:
        self._delta = delta
        self.where = where

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self._delta.metadata().configuration

    def relation(self, connection: DuckDBPyConnection) -> DuckDBPyRelation | None:
        """Return the rows of all files; None if there are none."""
        with told(self.where):
            return self._relation(connection)

    @property
    def row_count(self) -> int | None:
        """The rows of all files; None where deletion vectors take some away, as the log counts these apart."""
        return None if self._has_deletion_vectors else self._delta.count()

    @property
    def is_read_once(self) -> bool:
        """What delta-rs reads by a query is a stream."""
        return self._has_deletion_vectors

    @property
    def _has_deletion_vectors(self) -> bool:
        return "deletionVectors" in (self._delta.protocol().reader_features or ())

    def _relation(self, connection: DuckDBPyConnection) -> DuckDBPyRelation | None:
        if self._has_deletion_vectors:  # of which DuckDB is not told
            rows = QueryBuilder().register("rows", self._delta).execute("SELECT * FROM rows")
            return connection.from_arrow(rows)
        if "://" in self.where:  # delta-rs reaches stores that DuckDB has no built-in way to
            return connection.from_arrow(self._delta.to_pyarrow_dataset())
        # DuckDB takes paths as patterns.
        files = [_GLOB.sub(r"[\g<0>]", file) for file in self._paths]
        if not files:
            return None
        # Files from before a column was added lack it.
        found = connection.from_parquet(files, union_by_name=True)
        # The day of a partition is in a file's path alone. DuckDB's hive_partitioning would take columns from the
        # folders above too: in `topic=a/tables` each row would be of topic a.
        return found.project(f"*, {_DAY}") if HISTORY_DAY in self._delta.metadata().partition_columns else found

    @property
    def files(self) -> Sequence[str]:
        """The local files, as patterns and as paths."""
        if self._has_deletion_vectors or "://" in self.where:
            return ()
        with told(self.where):
            return [name for path in self._paths for name in {path, _GLOB.sub(r"[\g<0>]", path)}]

    @property
    def _paths(self) -> list[str]:
        """The paths of local files, which delta-rs gives as a URL has them."""
        return [unquote(file) for file in self._delta.file_uris()]
