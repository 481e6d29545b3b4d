"""Tables for the views, as Parquet files: what no rows are given for is empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from offsetstream.tables.beside import THRESHOLDS
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import TableSchema, all_schemas
from offsetstream.views.reader import ViewReader


def table_schemas() -> dict[str, TableSchema]:
    """Every table that a view may read."""
    return all_schemas() | {THRESHOLDS.name: THRESHOLDS}


def write_tables(folder: Path, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Path:
    """Write a file for each table."""
    for name, schema in table_schemas().items():
        filled = [dict.fromkeys(schema.column_names) | dict(row) for row in rows.get(name, ())]
        assert all(set(row) == set(schema.column_names) for row in filled), name
        pq.write_table(pa.Table.from_pylist(filled, schema=schema.arrow), folder / f"{name}.parquet")
    return folder


def reader_of(folder: Path, now: datetime) -> ViewReader:
    """The views over such files, of a moment."""
    relations = {name: f"FROM read_parquet('{folder}/{name}.parquet')" for name in table_schemas()}
    return ViewReader(
        PathStore(str(folder)), relations | {"clock": clock_sql(now).replace("TIMESTAMP ", "TIMESTAMPTZ ")}
    )


def clock_sql(now: datetime) -> str:
    """The view `clock` of another moment, for either engine."""
    return (
        f"SELECT TIMESTAMP '{now.isoformat()}' AS now_at, TIMESTAMP '{now.isoformat()}' - INTERVAL '1' DAY AS since_at"
    )
