"""Small Delta tables with the schemas of ours, written by delta-rs: no JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from offsetstream.tables.beside import THRESHOLDS
from offsetstream.tables.create import create_tables
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import TableSchema, all_schemas, load_schema
from offsetstream.tables.store import Snapshot

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
    """Return the table's columns as Arrow has them."""
    return pa.schema([(column.name, _TYPES[column.type]) for column in schema.columns])


def new_tables(
    folder: Path, rows: Mapping[str, Sequence[Mapping[str, Any]]] | None = None, cluster_id: str = "cluster-1"
) -> PathStore:
    """Create the tables in the folder as a job does before its first load, with rows, but for the user's thresholds."""
    tables = PathStore(str(folder))
    create_tables(tables, cluster_id, "new")
    for name, its in (rows or {}).items():
        if name != THRESHOLDS.name:
            append_rows(folder, name, its)
    return tables


def create_empty_tables(root: Path) -> None:
    """Create every table, without rows."""
    for name, schema in all_schemas().items():
        DeltaTable.create(root / name, arrow_schema(schema), partition_by=list(schema.partitioned_by))


def snapshot_at(path: str | Path) -> Snapshot:
    """Return the table that lies at the path."""
    return PathStore(str(Path(path).parent)).open(Path(path).name)


def append_rows(root: Path, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append the rows to the table, which is created if it is not there; columns that are not given are null."""
    schema = THRESHOLDS if table == THRESHOLDS.name else load_schema(table)
    filled = [dict.fromkeys(schema.column_names) | dict(row) for row in rows]
    data = pa.Table.from_pylist(filled, schema=arrow_schema(schema))
    write_deltalake(root / table, data, mode="append", partition_by=list(schema.partitioned_by))
