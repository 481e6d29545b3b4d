"""A table of a catalog, created and opened by Spark: its rows, its commits, and its files as far as SQL shows them.

Reads use the version that was opened. Each commit succeeds only if it is based on the table's current version.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from offsetstream.errors import ConflictError, DoubledRowsError, NoTableError, TablesError, first_line
from offsetstream.tables.catalog_store.commits import (
    APPENDS,
    CHANGES,
    CatalogTables,
    Stamp,
    TableState,
    as_first_commit,
    copied_session,
    first_stamp,
    table_state,
)
from offsetstream.tables.catalog_store.errors import is_conflict, translated_errors, translated_parts
from offsetstream.tables.files import (
    CurrentFiles,
    SmallFiles,
    StoredFiles,
    TableFiles,
    compaction_order,
    small_files_of,
)
from offsetstream.tables.matching import RowKeys, find_changes, rows_with_keys, with_all_columns, with_users_columns
from offsetstream.tables.rows import to_bytes
from offsetstream.tables.schema import DELETED, HISTORY_DAY, SWITCHED_OFF, TableSchema, is_history, load_schema
from offsetstream.tables.sql import in_partitions, literal, quoted
from offsetstream.tables.store import EVERY_ROW, Merge, Snapshot, Source, Transaction
from offsetstream.tables.task_rows import TaskRows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

_DAY = re.compile(rf"/{HISTORY_DAY}=(\d{{4}}-\d\d-\d\d)/")
# Spark's default would start thousands of tasks to list one folder.
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_APPEND_ONLY = "delta.appendOnly"
_SAME_SIZE = 20  # versions; a table hardly grows within these, so its size is not read again
_SMALL_BYTES = 16 << 20  # of files; their rows need several times as much memory
# Spark deletes old log files when it writes a checkpoint. They contain our notes, so they must outlast a suspended job.
_PROPERTIES = {"delta.enableExpiredLogCleanup": "true", "delta.logRetentionDuration": "interval 7 days"}
_NOT_EMPTY = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"

# Without these, a table gets what its session or workspace sets for new tables. Users may turn on the last two later.
_PLAIN = {
    **SWITCHED_OFF,
    "delta.minReaderVersion": "1",
    "delta.minWriterVersion": "2",
    "delta.enableChangeDataFeed": "false",
    "delta.checkpointPolicy": "classic",
}


def create_table(tables: CatalogTables, schema: TableSchema, properties: Mapping[str, str]) -> None:
    """Create a table unless it exists; TablesError if the catalog rejects it."""
    name, spark = tables.table(schema.name), tables.writers.of(schema.name, CHANGES).spark
    in_catalog = ".".join(map(quoted, tables.place))
    columns = schema.columns_sql
    partitioned = f"PARTITIONED BY ({', '.join(schema.partitioned_by)})" if schema.partitioned_by else ""
    try:
        if not spark.catalog.databaseExists(in_catalog):  # so an existing one needs no rights
            spark.sql(f"CREATE SCHEMA IF NOT EXISTS {in_catalog}")
        with as_first_commit(spark):
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING delta {partitioned} "
                f"COMMENT {literal(schema.comment)} "
                f"TBLPROPERTIES {_options_of({**_PLAIN, **schema.properties, **_PROPERTIES, **properties})}"
            )
    except (PySparkException, Py4JJavaError) as error:
        # Another process may have just created it, or has made its folder and is about to.
        is_half_made = isinstance(error, PySparkException) and error.getCondition() == _NOT_EMPTY
        if (_appears if is_half_made else _exists)(tables, schema.name):
            return
        if is_conflict(error):
            raise ConflictError(f"another process creates the table {tables.name}.{schema.name}") from error
        cause = error.java_exception if isinstance(error, Py4JJavaError) else error
        raise TablesError(
            f"cannot create the table {tables.name}.{schema.name}: {first_line(cause)}: get the rights to create it, "
            "or name another catalog and schema with --tables"
        ) from error


@retry(
    retry=retry_if_result(lambda exists: not exists),
    stop=stop_after_delay(5),
    wait=wait_fixed(0.2),
    retry_error_callback=lambda _: False,
)
def _appears(tables: CatalogTables, name: str) -> bool:
    """Return whether the table is there, now or soon."""
    return _exists(tables, name)


def _exists(tables: CatalogTables, name: str) -> bool:
    try:
        CatalogSnapshot(tables, name)
    except NoTableError:
        return False
    return True


def _options_of(properties: dict[str, str]) -> str:
    """Return properties as the SQL after TBLPROPERTIES."""
    return f"({', '.join(f'{literal(name)} = {literal(value)}' for name, value in properties.items())})"


class CatalogSnapshot(Snapshot):
    """A table of a catalog. `tables`, `state` and `table` (its SQL name) are only for the store's own modules."""

    def __init__(self, tables: CatalogTables, name: str) -> None:
        self.tables = tables
        self.name = name
        self.where = f"{tables.name}.{name}"
        self.table = tables.table(name)
        self._state = (tables.committed or {}).get(name)
        self._is_newest = self._state is None  # whether the version was read, and is not the one of the last own commit
        if self._state is None:
            with self.asking():
                self.state = table_state(tables.spark, self.table)

    @property
    def state(self) -> TableState:
        """The version of the table, its transactions, and our commits."""
        assert self._state is not None  # noqa: S101 - set at the start
        return self._state

    @state.setter
    def state(self, state: TableState) -> None:
        if self._state is None or state.version != self._state.version:
            self.__dict__.pop("frame", None)
            self.__dict__.pop("_detail", None)
        self._state, self._is_newest = state, True
        if self.tables.committed is not None:
            self.tables.committed[self.name] = state

    @contextmanager
    def asking(self, what: str = "read") -> Iterator[None]:
        """Translate Spark's errors. After one, a job opens the table anew: what is known of it may be old."""
        try:
            with translated_errors(self.where, what):
                yield
        except TablesError:
            if self.tables.committed is not None:
                self.tables.committed.pop(self.name, None)
            raise

    @property
    def version(self) -> int:
        """The number of the last commit."""
        return self.state.version

    @property
    def table_id(self) -> str:
        """The id in Delta's metadata."""
        return str(self._detail["id"])

    @property
    def created_at(self) -> datetime:
        """The time at which the table was created."""
        created: datetime = self._detail["createdAt"]  # Row has times in this machine's time zone
        return created.astimezone(UTC)

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return dict(self._detail["properties"])

    @property
    def columns(self) -> Mapping[str, str]:
        """The Spark SQL types of the columns by name."""
        return {field.name: field.dataType.simpleString().upper() for field in self.frame.schema.fields}

    @property
    def arrow(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        return _arrow_schema(self.frame)

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """The partition columns."""
        return tuple(self._detail["partitionColumns"])

    @property
    def files_and_bytes(self) -> tuple[int, int]:
        """Number of the current data files, and their size in bytes."""
        return self._detail["numFiles"] or 0, self._detail["sizeInBytes"] or 0

    @cached_property
    def frame(self) -> DataFrame:
        """The rows as a DataFrame."""
        with self.asking():
            return self.tables.spark.sql(self._at_version)

    @property
    def _at_version(self) -> str:
        version = f"VERSION AS OF {self.version}" if self._is_newest else ""  # else also what others committed since
        return f"SELECT * FROM {self.table} {version}"  # noqa: S608 - our own name

    @cached_property
    def _detail(self) -> Row:
        with self.asking():
            (row,) = self.tables.spark.sql(f"DESCRIBE DETAIL {self.table}").collect()
        return row

    @property
    def _is_small(self) -> bool:
        """Whether all rows can be read at once. The size may be some versions old, because to get it is a Spark job."""
        version, size = self.tables.sizes.get(self.name, (-_SAME_SIZE, 0))
        if self.version - version >= _SAME_SIZE:
            size = self.files_and_bytes[1]
            self.tables.sizes[self.name] = (self.version, size)
        return size <= _SMALL_BYTES

    def transaction_version(self, app_id: str) -> int | None:
        """Return the version of the last transaction with this id; None if there was none."""
        return self.state.transactions.get(app_id)

    def written_days(self) -> set[date]:
        """Return the days on which a history's rows were written; a null, which only a user can write, is skipped."""
        found = self.query(f"SELECT DISTINCT {HISTORY_DAY} AS day FROM rows").read_all()  # noqa: S608 - our own name
        return set(found["day"].drop_null().to_pylist())

    def refresh(self) -> None:
        """Move to the current version by reading the commits since."""
        with self.asking():
            self.state = table_state(self.tables.spark, self.table, self.state)

    def rows(self, where: str = EVERY_ROW, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
        """Return the rows that match the condition, part by part; all columns, or those in `columns`."""
        selected = ", ".join(map(quoted, columns)) or "*"
        found = self.query(f"SELECT {selected} FROM rows WHERE {where}")  # noqa: S608 - our own SQL
        return (pa.Table.from_batches([batch]) for batch in found if batch.num_rows)

    def query(self, sql: str, **others: Snapshot) -> pa.RecordBatchReader:
        """Run the query with Spark; each table is a common table expression at its version."""
        named = {"rows": self, **others}
        tables = [
            f"{name} AS ({each._at_version})" for name, each in named.items() if isinstance(each, CatalogSnapshot)
        ]
        with self.asking():
            frame = self.tables.spark.sql(f"WITH {', '.join(tables)} {sql}")
        return _batches_of(frame, self.where, is_small=self._is_small)

    def append(self, rows: Iterable[pa.Table], *transactions: Transaction) -> None:
        """Append rows; columns that they lack become null."""
        kind = _kind_of_appends(self)
        _append(self, _to_frame(self, rows, kind), transactions, kind)

    def replace(self, where: str, rows: Iterable[pa.Table], *transactions: Transaction) -> None:
        """Replace all rows that match the condition by `rows`; columns that they lack become null."""
        _replace(self, where, _to_frame(self, rows), transactions)

    def merge(self, source: pa.Table, merge: Merge, *transactions: Transaction) -> None:
        """Merge rows: Arrow computes the changes; the memory needed depends on the source's size only."""
        _merge(self, source, merge, transactions)

    def append_from_tasks(self, rows: TaskRows, *transactions: Transaction) -> None:
        """Append packed rows; a user's columns are null."""
        found = rows.unpacked(load_schema(self.name).arrow)
        users = [field for field in self.frame.schema if field.name not in found.columns]
        missing = {field.name: F.lit(None).cast(field.dataType) for field in users}
        _append(self, found.withColumns(missing) if missing else found, transactions, _kind_of_appends(self))

    def replace_from_tasks(self, where: str, rows: TaskRows, *transactions: Transaction) -> None:
        """Replace all rows that match the condition by packed rows."""
        found = rows.unpacked(load_schema(self.name).arrow)
        _replace(self, where, _with_users_columns(self, where, found), transactions)

    def commit_nothing(self, *transactions: Transaction) -> None:
        """Commit an empty write of each kind that a writer may have started; ConflictError after another commit."""
        for kind in (CHANGES, APPENDS) if is_history(self.name) else (CHANGES,):
            _append(self, self.frame.limit(0), transactions, kind)

    def require_writable(self) -> None:
        """Raise TablesError if the table is append-only; it says how to undo that. Spark can write all else."""
        if self.properties.get(_APPEND_ONLY, "false").lower() == "true":
            raise TablesError(
                f"the table {self.where} has {_APPEND_ONLY}=true, so the job cannot write to it: undo it in Spark "
                f"SQL with ALTER TABLE {self.where} SET TBLPROPERTIES ('{_APPEND_ONLY}' = 'false')"
            )


def _to_frame(table: CatalogSnapshot, rows: Iterable[pa.Table], kind: str = CHANGES) -> DataFrame:
    """Return rows as a DataFrame in the session for commits of the kind; columns that they lack are null."""
    schema = table.arrow
    parts = [with_all_columns(part, schema) for part in rows]
    session = table.tables.writers.of(table.name, kind).spark
    return session.createDataFrame(pa.concat_tables([schema.empty_table(), *parts]), table.frame.schema)


def _append(table: CatalogSnapshot, rows: DataFrame, transactions: Sequence[Transaction], kind: str) -> None:
    """Append rows: to a history even if it was changed since, to a state table only if it was not."""
    _commit(table, kind, transactions, lambda stamp: _add(table, rows, stamp))


def _replace(table: CatalogSnapshot, where: str, rows: DataFrame, transactions: Sequence[Transaction]) -> None:
    """Replace all rows that match the condition by `rows`."""
    if is_history(table.name) and not _is_doubled(table, where):
        _commit(table, CHANGES, transactions, lambda stamp: _replace_known(table, where, rows, stamp))
        return
    condition = F.lit(True) if where == EVERY_ROW else F.expr(where)
    _commit(
        table,
        CHANGES,
        transactions,
        lambda stamp: rows.writeTo(table.table).options(**stamp.options).overwrite(condition),
    )


def _with_users_columns(table: CatalogSnapshot, where: str, rows: DataFrame) -> DataFrame:
    """Do the same as `matching.with_users_columns` for rows in Spark."""
    users, key = [name for name in table.arrow.names if name not in rows.columns], load_schema(table.name).key
    if not users:
        return rows
    kept = table.frame.where(where).select(*key, *map(quoted, users)).dropDuplicates([*key])
    columns = [*(f"source.{name}" for name in rows.columns), *(f"kept.{quoted(name)}" for name in users)]
    return rows.alias("source").join(kept.alias("kept"), _same(key, "source", "kept"), "left").select(*columns)


def _merge(table: CatalogSnapshot, source: pa.Table, merge: Merge, transactions: Sequence[Transaction]) -> None:
    """Merge `source` (the table's columns and `_deleted`), as `Snapshot.merge` describes."""
    schema, key = merge.schema, merge.schema.key
    is_deleted, rows = source[DELETED].combine_chunks(), source.select(schema.column_names).cast(schema.arrow)
    if merge.replace_where is not None:
        only = with_users_columns(table, merge.replace_where, rows.filter(pc.invert(is_deleted)), key)
        table.replace(merge.replace_where, [only], *transactions)
        return
    changes = find_changes(_stored(table, rows, key), rows, is_deleted, key, newer_only=merge.newer_only)
    if changes.doubled:
        raise DoubledRowsError(schema.name, changes.doubled)
    if not changes.removed.num_rows:
        if changes.added.num_rows:  # a merge that changes nothing must not make a version
            _append(table, _to_frame(table, [changes.added]), transactions, CHANGES)
        return
    deleted = rows_with_keys(rows.filter(is_deleted), RowKeys(changes.removed, key))
    frames = {False: _to_frame(table, [changes.added]), True: _to_frame(table, [deleted])}
    changed = reduce(DataFrame.union, (frame.withColumn(DELETED, F.lit(gone)) for gone, frame in frames.items()))
    _commit(table, CHANGES, transactions, lambda stamp: _merge_known(table, changed, key, stamp))


def _commit(
    table: CatalogSnapshot, kind: str, transactions: Sequence[Transaction], write: Callable[[Stamp], None]
) -> None:
    """Commit a write and refresh the table; ConflictError if Delta skipped or rejected the commit."""
    conflict = ConflictError(f"the table {table.where} was written to meanwhile")
    session = table.tables.writers.of(table.name, kind)
    if kind not in table.state.transactions:
        # The notes are gone, so the last number is unknown: an empty commit checks that the state read is current.
        first, read = first_stamp(table.state, kind), table.version
        with table.asking("write to"):
            _add(table, table.frame.limit(0), first)
        table.refresh()
        if first.commit not in table.state.commits or table.version != read + 1:
            raise conflict
    stamp = Stamp.after(table.state, kind, transactions)
    with session.turn():
        try:
            with table.asking("write to"):
                write(stamp)
        except TablesError:
            with suppress(TablesError):
                table.refresh()
            if stamp.commit not in table.state.commits:  # else the commit succeeded and only the answer was lost
                raise
            return
        version = session.committed_version
    if version == table.version + 1:
        table.state = stamp.done
        return
    table.refresh()  # somebody else committed too, or the rows came from another session
    if stamp.commit not in table.state.commits:  # Delta skipped it: another commit has its number
        raise conflict


def _kind_of_appends(table: CatalogSnapshot) -> str:
    return APPENDS if is_history(table.name) else CHANGES


def _add(table: CatalogSnapshot, rows: DataFrame, stamp: Stamp) -> None:
    rows.writeTo(table.table).options(**stamp.options).append()


def _replace_known(table: CatalogSnapshot, where: str, rows: DataFrame, stamp: Stamp) -> None:
    """Replace the rows of a history that were read; rows that were appended meanwhile stay."""
    key = load_schema(table.name).row_key
    before = table.frame.where(where)
    gone = before.alias("old").join(rows.alias("new"), _same(key, "old", "new"), "left_anti")
    changed = rows.exceptAll(before).withColumn(DELETED, F.lit(False)).union(gone.withColumn(DELETED, F.lit(True)))
    _merge_known(table, changed, key, stamp, where)


def _merge_known(
    table: CatalogSnapshot, changed: DataFrame, key: Sequence[str], stamp: Stamp, where: str = EVERY_ROW
) -> None:
    """Merge rows that are known to change the table.

    The source's columns get new names, so that names in the condition `where` mean the table's columns.
    """
    new = {name: f"_new_{name}" for name in changed.columns}
    session = table.tables.writers.of(table.name, CHANGES).spark
    values: dict[str, str | Column] = {name: f"source.`{new[name]}`" for name in table.arrow.names}
    same = " AND ".join(f"target.`{name}` <=> source.`{new[name]}`" for name in key)
    with stamp.on(session):
        into = DeltaTable.forName(session, table.table).alias("target")
        merging = into.merge(changed.withColumnsRenamed(new).alias("source"), f"({where}) AND {same}")
        merging = merging.whenMatchedDelete(f"source.{new[DELETED]}")
        merging.whenMatchedUpdate(None, values).whenNotMatchedInsert(f"NOT source.{new[DELETED]}", values).execute()


def _stored(table: CatalogSnapshot, rows: pa.Table, key: Sequence[str]) -> Iterable[pa.Table]:
    """Return the stored rows that have the key of one of `rows`."""
    keys = table.tables.spark.createDataFrame(rows.select(key))
    same_partitions = in_partitions(sorted(pc.unique(rows["offsets_partition"]).to_pylist()))
    found = table.frame.where(same_partitions).alias("old")
    found = found.join(F.broadcast(keys).alias("new"), _same(key, "old", "new"), "left_semi")
    return [pa.Table.from_batches([each]) for each in _batches_of(found, table.where, is_small=True)]


def _same(key: Sequence[str], one: str, other: str) -> list[Column]:
    return [F.col(f"{one}.{name}").eqNullSafe(F.col(f"{other}.{name}")) for name in key]


def _is_doubled(table: CatalogSnapshot, where: str) -> bool:
    key = ", ".join(load_schema(table.name).row_key)
    doubled = f"SELECT 1 AS one FROM rows WHERE {where} GROUP BY {key} HAVING count(*) > 1 LIMIT 1"  # noqa: S608
    return bool(table.query(doubled).read_all().num_rows)


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    """Return the frame's columns as an Arrow schema."""
    return to_arrow_schema(frame.schema)


def _batches_of(frame: DataFrame, where: str, *, is_small: bool) -> pa.RecordBatchReader:
    """Return the frame's rows. Errors, also those during reading, become TablesError about the table `where`."""
    schema = _arrow_schema(frame)
    with translated_errors(where):
        if is_small:
            return frame.toArrow().cast(schema).to_reader()
        parts = frame.mapInArrow(_packed, "packed BINARY").toLocalIterator(prefetchPartitions=True)
        found = (batch for row in parts for batch in pa.ipc.open_stream(row["packed"]))
        rows = (part for batch in found for part in pa.Table.from_batches([batch]).cast(schema).to_batches())
        return pa.RecordBatchReader.from_batches(schema, translated_parts(rows, where))


def _packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"packed": pa.array([to_bytes(batch)], pa.binary())})


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


class CatalogFiles(TableFiles):
    """The table's files, as Spark SQL shows them."""

    def __init__(self, table: CatalogSnapshot) -> None:
        self._table = table

    def small_files(self) -> list[SmallFiles]:
        """Return all sets of at least two files, even large ones: OPTIMIZE skips files that are large enough."""
        today = datetime.now(UTC).date()
        with translated_errors(self._table.where):
            files = self._table.frame.inputFiles()
        found = Counter(_day_of(file) for file in files)
        return compaction_order((small_files_of(day, count, today) for day, count in found.items()), today)

    def compact(self, crowd: SmallFiles) -> None:
        """Compact the files with OPTIMIZE."""
        where = "" if crowd.day is None else f"WHERE {HISTORY_DAY} = DATE '{crowd.day}'"
        session = copied_session(self._table.tables.spark)
        for setting in ("minFileSize", "maxFileSize"):
            session.conf.set(f"spark.databricks.delta.optimize.{setting}", str(crowd.target_bytes))
        with translated_errors(self._table.where, "compact"):
            session.sql(f"OPTIMIZE {self._table.table} {where}").collect()

    def clear(self) -> None:
        """Run VACUUM; Delta deletes old log files itself when it writes a checkpoint."""
        self._vacuum("")

    def removable(self) -> set[str]:
        """Return the names of the data files that a VACUUM would delete; SQL shows at most a thousand."""
        return {path.rsplit("/", 1)[-1] for path in self._vacuum("DRY RUN")}

    def present(self) -> CurrentFiles:
        """Return number and bytes of the current data files, from DESCRIBE DETAIL."""
        return CurrentFiles(*self._table.files_and_bytes)

    def stored(self, without: Collection[str] = ()) -> StoredFiles:  # noqa: ARG002 - unused files are not counted anyway
        """Return the data files of the current version: SQL shows neither unused files nor the log."""
        present = self.present()
        return StoredFiles(present.files, 0, present.bytes)

    def lost(self) -> list[str]:
        """Return nothing: Spark reports a missing file when it reads it."""
        return []

    def _vacuum(self, how: str) -> list[str]:
        session = copied_session(self._table.tables.spark)
        session.conf.set(_LISTING, "4")
        with translated_errors(self._table.where, "clean up"):
            return [row["path"] for row in session.sql(f"VACUUM {self._table.table} {how}").collect()]


def _day_of(file: str) -> date | None:
    found = _DAY.search(file)
    return date.fromisoformat(found[1]) if found else None
