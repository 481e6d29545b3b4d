"""The Spark counterparts of `arrow_rows`, `row_pieces` and `matching.with_users_columns`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from offsetstream.tables.arrow_rows import FIRST_MS, LAST_MS
from offsetstream.tables.plain_rows import flat_rows
from offsetstream.tables.row_pieces import ROWS_AT_ONCE
from offsetstream.tables.schema import ColumnSchema, TableSchema
from offsetstream.tables.sql import quoted


def replacing_rows(stored: DataFrame, rows: DataFrame, where: str, schema: TableSchema) -> DataFrame:
    """Return `rows`, which will replace stored rows, with the stored values of a user's columns added by key."""
    users, key = [name for name in stored.columns if name not in schema.column_names], schema.key
    if not users:
        return rows
    kept = stored.where(where).select(*key, *map(quoted, users)).dropDuplicates([*key])
    same = [F.col(f"source.{name}").eqNullSafe(F.col(f"kept.{name}")) for name in key]
    columns = [*(f"source.{name}" for name in schema.column_names), *(f"kept.{quoted(name)}" for name in users)]
    return rows.alias("source").join(kept.alias("kept"), same, "left").select(*columns)


def timestamp_of(column: str) -> str:
    """Return the SQL that converts milliseconds to a timestamp; null outside the years 1 to 9999."""
    return f"CASE WHEN {is_supported_time(column)} THEN timestamp_millis({column}) END"


def is_supported_time(milliseconds: str) -> str:
    """Return the SQL condition that the time is within the years 1 to 9999, which every engine supports."""
    return f"{milliseconds} BETWEEN {FIRST_MS} AND {LAST_MS}"


def struct_fields(columns: Iterable[ColumnSchema]) -> str:
    """Return the fields of a Spark struct for plain rows, which have times as milliseconds in `<name>_ms`."""
    return ", ".join(
        f"{column.name}_ms: BIGINT" if column.type == "TIMESTAMP" else f"{column.name}: {column.type}"
        for column in columns
    )


def to_table_columns(rows: DataFrame, schema: TableSchema) -> DataFrame:
    """Return plain rows with the table's columns."""
    columns = (
        f"{timestamp_of(f'{column.name}_ms')} AS {column.name}" if column.type == "TIMESTAMP" else column.name
        for column in schema.columns
    )
    return rows.selectExpr(*columns)


def to_python_one_by_one(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Convert rows to Python one at a time, because a row may have megabytes of JSON."""
    for batch in batches:
        for at in range(batch.num_rows):
            yield from batch.slice(at, 1).to_pylist()


def in_batches(found: Iterable[dict[str, Any]], lists: Collection[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows as record batches. The columns in `lists` hold plain rows; few are Python objects at a time."""
    waiting, size = list[dict[str, Any]](), 0
    for row in found:
        waiting.append(row | {name: flat_rows(row[name]) for name in lists})
        size += sum(len(waiting[-1][name]) for name in lists)
        if size >= ROWS_AT_ONCE:
            yield pa.RecordBatch.from_pylist(waiting, schema=schema)
            waiting, size = [], 0
    yield pa.RecordBatch.from_pylist(waiting, schema=schema)
