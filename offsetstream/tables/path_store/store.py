"""The store in a folder: local, or in any object store that Spark and delta-rs reach; each table has a subfolder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltalake import DeltaTable, QueryBuilder

from offsetstream.errors import EnvironmentNotReadyError, TablesError
from offsetstream.settings.places import in_hadoop, is_remote
from offsetstream.tables.names import JOB_LEASE
from offsetstream.tables.path_store.errors import translated_errors
from offsetstream.tables.schema import HISTORY_DAY, TableSchema
from offsetstream.tables.sql import quoted
from offsetstream.tables.store import Snapshot, Source, SparkTables, Store

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from pyspark.sql import DataFrame, SparkSession

    from offsetstream.tables.path_store.damage import PathFolder
    from offsetstream.tables.path_store.data_file import FileWriter
    from offsetstream.tables.path_store.files import PathFiles
    from offsetstream.tables.path_store.seen import SeenTables
    from offsetstream.tables.path_store.snapshot import PathSnapshot

_DAY = f"TRY_CAST(regexp_extract(filename, '/{HISTORY_DAY}=([^/]+)/[^/]+$', 1) AS DATE) AS {HISTORY_DAY}"
_GLOB = re.compile(r"[*?\[]")
_LOOK_SECONDS = 12.0  # object stores charge for each request: an idle job would otherwise make thirty a minute


@dataclass(frozen=True)
class PathStore(Store):
    """One cluster's tables in a folder; `root` is the folder's path or URI without a slash at the end."""

    root: str
    _seen: SeenTables | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The folder."""
        return self.root

    @property
    def check_seconds(self) -> float:
        """12 seconds in an object store, 0 on a disk."""
        return _LOOK_SECONDS if is_remote(self.root) else 0.0

    def table(self, name: str) -> str:
        """Return the path or URI of the table `name`."""
        return f"{self.root}/{name}"

    def create(self, schema: TableSchema, properties: Mapping[str, str]) -> None:
        """Create a table with delta-rs: it takes milliseconds and needs no JVM, where Spark takes ten seconds."""
        from offsetstream.tables.path_store.snapshot import create_table  # noqa: PLC0415 - no look-up needs it

        create_table(self.table(schema.name), schema, properties)

    def open(self, name: str) -> PathSnapshot:
        """Open the table at its current version; NoTableError if it does not exist."""
        from offsetstream.tables.path_store.snapshot import PathSnapshot  # noqa: PLC0415 - no look-up needs it

        if self._seen is not None:
            return PathSnapshot(self._seen.opened(name), name, self._seen)
        with translated_errors(self.table(name)):
            return PathSnapshot(DeltaTable(self.table(name)), name)

    def opened(self, name: str) -> Snapshot | None:
        """Open the table anew at its current version; None if it does not exist."""
        if self._seen is not None:
            self._seen.close(name)
        return super().opened(name)

    def for_job(self) -> PathStore:
        """Return this store with a memory of the tables that it opened."""
        from offsetstream.tables.path_store.seen import SeenTables  # noqa: PLC0415 - no look-up needs it

        return replace(self, _seen=SeenTables(self.root))

    def sql_name(self, name: str) -> str:
        """Return the table's path as a name in Spark SQL."""
        return f"delta.{quoted(in_hadoop(self.table(name)))}"

    def in_spark(self, spark: SparkSession) -> PathSpark:
        """Return the tables for Spark."""
        return PathSpark(self, spark)

    def task_writer(self, name: str, signature: Mapping[str, Any]) -> FileWriter:
        """Return a writer of a file of the table."""
        from offsetstream.tables.path_store.data_file import FileWriter  # noqa: PLC0415 - no look-up needs it

        return FileWriter(self.table(name), name, signature)

    def files(self, table: Snapshot) -> PathFiles:
        """Return the files of an opened table."""
        from offsetstream.tables.path_store.files import PathFiles  # noqa: PLC0415 - no look-up needs it
        from offsetstream.tables.path_store.snapshot import PathSnapshot  # noqa: PLC0415 - likewise

        assert isinstance(table, PathSnapshot)  # noqa: S101 - of this store
        return PathFiles(table)

    def folder(self, name: str) -> PathFolder:
        """Return the table's files for repair."""
        from offsetstream.tables.path_store.damage import PathFolder  # noqa: PLC0415 - rarely needed

        if self._seen is None:
            return PathFolder(self.root, name)
        return PathFolder(self.root, name, partial(self._seen.forget, name))

    def source(self, name: str) -> PathSource:
        """Open the table at its current version for DuckDB; NoTableError if it does not exist."""
        with translated_errors(self.table(name)):
            return PathSource(DeltaTable(self.table(name)), self.table(name))


_WITHOUT_ZONE = {"TIMESTAMP", "TIMESTAMP_NS"}


class PathSource(Source):
    """A table for DuckDB: delta-rs lists the files, and DuckDB reads them itself if it can."""

    def __init__(self, delta: DeltaTable, where: str) -> None:
        self._delta = delta
        self.where = where

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self._delta.metadata().configuration

    def relation(self, connection: DuckDBPyConnection) -> DuckDBPyRelation | None:
        """Return the rows of all files; None if there are no files."""
        with translated_errors(self.where):
            return self._relation(connection)

    @property
    def row_count(self) -> int | None:
        """The number of rows of all files; None with deletion vectors, since the log's counts include deleted rows."""
        return None if self._has_deletion_vectors else self._delta.count()

    @property
    def is_read_once(self) -> bool:
        """Whether delta-rs reads the rows with a query, whose result is a stream."""
        return self._has_deletion_vectors

    @property
    def _has_deletion_vectors(self) -> bool:
        return "deletionVectors" in (self._delta.protocol().reader_features or ())

    def _relation(self, connection: DuckDBPyConnection) -> DuckDBPyRelation | None:
        if self._has_deletion_vectors:  # DuckDB does not know these
            rows = QueryBuilder().register("rows", self._delta).execute("SELECT * FROM rows")
            return connection.from_arrow(rows)
        if is_remote(self.where):  # delta-rs can read object stores; DuckDB would need an extension
            return connection.from_arrow(self._delta.to_pyarrow_dataset())
        # DuckDB reads a path as a glob pattern, so special characters are escaped.
        files = [_GLOB.sub(r"[\g<0>]", file) for file in self._paths]
        if not files:
            return None
        # Files that are older than a column lack it.
        found = connection.from_parquet(files, union_by_name=True)
        # Only the file's path has the day of its partition. DuckDB's hive_partitioning would also read columns from
        # the folders above: in `topic=a/tables`, each row would get the topic a.
        has_day = HISTORY_DAY in self._delta.metadata().partition_columns
        return _in_utc(found.project(f"*, {_DAY}") if has_day else found)

    @property
    def files(self) -> Sequence[str]:
        """The local files, as DuckDB's patterns and as plain paths."""
        if self._has_deletion_vectors or is_remote(self.where):
            return ()
        with translated_errors(self.where):
            return [name for path in self._paths for name in {path, _GLOB.sub(r"[\g<0>]", path)}]

    @property
    def _paths(self) -> list[str]:
        """The paths of the local files; delta-rs returns them URL-encoded."""
        return [unquote(file) for file in self._delta.file_uris()]


def _in_utc(rows: DuckDBPyRelation) -> DuckDBPyRelation:
    """Return the rows with UTC in times without a zone: Spark writes such ones (INT96)."""
    bare = [name for name, type_ in zip(rows.columns, rows.types, strict=True) if str(type_) in _WITHOUT_ZONE]
    if not bare:
        return rows
    zoned = ", ".join(f"timezone('UTC', {quoted(name)}) AS {quoted(name)}" for name in bare)
    return rows.project(f"* REPLACE ({zoned})")


_OTHER_STORE = (
    "Spark finds another table at {place} than the driver, or none: configure the same store for both, for Spark with "
    "--conf spark.hadoop.fs... and for the driver in the environment"
)


class PathSpark(SparkTables):
    """The tables of a path store for a Spark session."""

    def __init__(self, store: PathStore, spark: SparkSession) -> None:
        self._store = store
        self._spark = spark
        self._known: set[str] = set()

    def require_reachable(self) -> None:
        """Raise EnvironmentNotReadyError if Hadoop cannot reach the tables that delta-rs has created."""
        from offsetstream.embedded.hadoop import exists  # noqa: PLC0415 - of Spark's JVM

        place = in_hadoop(self._store.table(JOB_LEASE))
        if not exists(self._spark.sparkContext, f"{place}/_delta_log"):
            raise EnvironmentNotReadyError(_OTHER_STORE.format(place=place))

    def frame(self, name: str) -> DataFrame:
        """Return the table's current rows; TablesError if Spark finds another table in this place."""
        place = in_hadoop(self._store.table(name))
        if name not in self._known:
            self._require_same(name, place)
            self._known.add(name)
        return self._spark.read.format("delta").load(place)

    def _require_same(self, name: str, place: str) -> None:
        from delta.tables import DeltaTable as DeltaOfSpark  # noqa: PLC0415 - only Spark users have it
        from pyspark.errors import PySparkException  # noqa: PLC0415 - likewise

        message = _OTHER_STORE.format(place=place)
        try:
            # Not with SQL, which would query the session's catalog before the path.
            found = DeltaOfSpark.forPath(self._spark, place).detail().select("id").head()
        except PySparkException as error:
            raise TablesError(message) from error
        if found is None or found["id"] != self._store.open(name).table_id:
            raise TablesError(message)
