"""Writes small tables with our schemas, without a JVM: Delta tables by delta-rs, and Parquet files for views."""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from offsetstream.tables.create import create_tables
from offsetstream.tables.names import CLUSTER, OFFSETS_PARTITIONS, OWNED, TOPIC_PARTITIONS
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import PROPERTY, SCHEMA_VERSION, THRESHOLDS, TableSchema, all_schemas, load_schema
from offsetstream.tables.store import Snapshot
from offsetstream.views.reader import ViewReader

_ALWAYS = datetime(2100, 1, 1, tzinfo=UTC)  # later than any clock of a test
_TABLE_ID = re.compile(r'"id":"[0-9a-f-]{36}"')
_TYPES = {
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "DOUBLE": pa.float64(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "DATE": pa.date32(),
    "BINARY": pa.binary(),
}


def arrow_schema(schema: TableSchema) -> pa.Schema:
    """Return the table's columns as an Arrow schema."""
    return pa.schema([(column.name, _TYPES[column.type]) for column in schema.columns])


def new_tables(
    folder: Path, rows: Mapping[str, Sequence[Mapping[str, Any]]] | None = None, cluster_id: str = "cluster-1"
) -> PathStore:
    """Create the tables like a job before its first load, except the user's thresholds, and append the rows."""
    tables = PathStore(str(folder))
    shutil.copytree(_empty_tables(cluster_id), folder, dirs_exist_ok=True)
    for log in folder.glob("*/_delta_log/*.json"):  # each copy gets its own table id
        log.write_text(_TABLE_ID.sub(f'"id":"{uuid4()}"', log.read_text("utf-8")), "utf-8")
    for name, new in (rows or {}).items():
        if name != THRESHOLDS.name:
            append_rows(folder, name, new)
    return tables


@cache
def _empty_tables(cluster_id: str) -> Path:
    """Create the tables of a cluster once in a process, since hundreds of tests start with a copy of them."""
    folder = Path(tempfile.mkdtemp(prefix="empty-tables-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    create_tables(PathStore(str(folder)), cluster_id, "new")
    return folder


def create_empty_tables(root: Path) -> None:
    """Create all tables, without rows, cluster and most properties."""
    for schema in all_schemas().values():
        create_table(root, schema, arrow_schema(schema))


def create_table(root: Path, schema: TableSchema, columns: pa.Schema) -> None:
    """Create a table with these columns, unless it exists."""
    if not (root / schema.name).exists():
        DeltaTable.create(
            root / schema.name,
            columns,
            partition_by=list(schema.partitioned_by),
            configuration={PROPERTY: str(SCHEMA_VERSION)},
            raise_if_key_not_exists=False,
        )


def snapshot_at(path: str | Path) -> Snapshot:
    """Return the table at the path."""
    return PathStore(str(Path(path).parent)).open(Path(path).name)


def append_rows(root: Path, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append the rows to the table; missing columns are null.

    Create the table if needed, and those from which each look-up reads the age of its answer.
    """
    schema = THRESHOLDS if table == THRESHOLDS.name else load_schema(table)
    for each in (schema, *map(load_schema, (OFFSETS_PARTITIONS, TOPIC_PARTITIONS, CLUSTER))):
        create_table(root, each, arrow_schema(each))
    filled = _filled(schema, rows, datetime.now(UTC))
    data = pa.Table.from_pylist(filled, schema=arrow_schema(schema))
    write_deltalake(root / table, data, mode="append")


def _filled(schema: TableSchema, rows: Iterable[Mapping[str, Any]], looked_at: datetime) -> list[dict[str, Any]]:
    """Return the rows with all columns. By default an offsets partition is as if the job had just read it."""
    empty = dict.fromkeys(schema.column_names)
    looks = {"load_state": OWNED, "caught_up_at": looked_at} if schema.name == OFFSETS_PARTITIONS else {}
    return [empty | (looks if row.get("load_state", OWNED) == OWNED else {}) | dict(row) for row in rows]


def table_schemas() -> dict[str, TableSchema]:
    """Return all tables that a view may read."""
    return all_schemas() | {THRESHOLDS.name: THRESHOLDS}


def write_tables(folder: Path, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Path:
    """Write a Parquet file for each table."""
    for name, schema in table_schemas().items():
        filled = _filled(schema, rows.get(name, ()), _ALWAYS)
        assert all(set(row) == set(schema.column_names) for row in filled), name
        pq.write_table(pa.Table.from_pylist(filled, schema=schema.arrow), folder / f"{name}.parquet")
    return folder


def reader_of(folder: Path, now: datetime) -> ViewReader:
    """Return the views over such files, at the time `now`."""
    relations = {name: f"FROM read_parquet('{folder}/{name}.parquet')" for name in table_schemas()}
    return ViewReader(
        PathStore(str(folder)), relations | {"clock": clock_sql(now).replace("TIMESTAMP ", "TIMESTAMPTZ ")}
    )


def clock_sql(now: datetime) -> str:
    """Return the SQL of the view `clock` for the time `now`; both engines read it."""
    return (
        f"SELECT TIMESTAMP '{now.isoformat()}' AS now_at, TIMESTAMP '{now.isoformat()}' - INTERVAL '1' DAY AS since_at"
    )
