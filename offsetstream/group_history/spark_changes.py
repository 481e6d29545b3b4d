"""The decoded history by Spark: what is too large for the driver, read from the history of records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from offsetstream.group_history.decoding import COLUMNS, ORDER, decoded_changes
from offsetstream.group_history.driver_changes import unsigned
from offsetstream.group_history.spans import BEFORE_SPAN, IN_SPAN, Spans, within
from offsetstream.tables.arrow_rows import FIRST_MS, LAST_MS
from offsetstream.tables.names import DECODED_TABLES

_LOG = ("offsets_partition", "log_id")
_CELL = (*_LOG, "group_id", "key_type", "key_json")
_ROWS = 10_000  # changes that are Python's at a time
_Deriver = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def recorded(records: DataFrame, spans: Spans) -> DataFrame:
    """Return the rows of `group_records` that are in the spans."""
    return with_finality(records.where(within(spans, IN_SPAN)), is_final=False)


def last_before(records: DataFrame, spans: Spans) -> DataFrame:
    """Return the last row of each cell before the spans, but for tombstones."""
    rest = [name for name in (*COLUMNS, "is_tombstone") if name not in (*_CELL, "is_final")]
    found = records.where(within(spans, BEFORE_SPAN)).groupBy(*_CELL)
    last = found.agg(F.max_by(F.struct(*rest), F.col("record_offset")).alias("last")).select(*_CELL, "last.*")
    return with_finality(last.where(~F.col("is_tombstone")), is_final=False)


def with_finality(rows: DataFrame, *, is_final: bool) -> DataFrame:
    """Return rows of records or cells with `COLUMNS`; `is_final`: they are what is at the end of a span."""
    return rows.withColumn("is_final", F.lit(is_final)).select(*COLUMNS)


@contextmanager
def changes_in_spark(
    rows: DataFrame, spans: Spans, topic_names: Mapping[str, str], written: Mapping[str, Mapping[int, int]]
) -> Iterator[dict[str, DataFrame]]:
    """Give what `decoding.decoded_changes` makes of rows, as rows of the `DECODED_TABLES`, while the context lasts."""
    result = StructType.fromDDL(", ".join(f"{table} ARRAY<STRUCT<{_row_type(table)}>>" for table in DECODED_TABLES))
    assert isinstance(result, StructType)  # noqa: S101 - as the columns above make it
    work = _deriver(to_arrow_schema(result), spans, dict(topic_names), written)
    # Whole groups in one task, and each in the order of its log.
    ordered = rows.repartition(*_LOG, "group_id").sortWithinPartitions(*ORDER)
    found = ordered.mapInArrow(work, result).persist(StorageLevel.DISK_ONLY)
    try:
        yield {table: _rows(found, table) for table in DECODED_TABLES}
    finally:
        found.unpersist()


def _rows(found: DataFrame, table: str) -> DataFrame:
    rows = found.select(F.explode(table).alias("row")).select("row.*")
    for column in unsigned(table).columns:
        if column.type == "TIMESTAMP":
            milliseconds = F.col(f"{column.name}_ms")
            is_held = milliseconds.between(F.lit(FIRST_MS), F.lit(LAST_MS))
            rows = rows.withColumn(column.name, F.when(is_held, F.timestamp_millis(milliseconds)))
    return rows.select(*unsigned(table).column_names)


def _row_type(table: str) -> str:
    return ", ".join(
        f"{column.name}_ms: BIGINT" if column.type == "TIMESTAMP" else f"{column.name}: {column.type}"
        for column in unsigned(table).columns
    )


def _deriver(
    schema: pa.Schema, spans: Spans, topic_names: Mapping[str, str], written: Mapping[str, Mapping[int, int]]
) -> _Deriver:
    def derive(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting, size = list[dict[str, Any]](), 0
        for found in decoded_changes(_one_by_one(batches), spans, topic_names, written):
            waiting.append(found)
            size += sum(map(len, found.values()))
            if size >= _ROWS:
                yield pa.RecordBatch.from_pylist(waiting, schema=schema)
                waiting, size = [], 0
        yield pa.RecordBatch.from_pylist(waiting, schema=schema)

    return derive


def _one_by_one(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Yield each row as Python's: a record may be a megabyte of JSON."""
    for batch in batches:
        for at in range(batch.num_rows):
            yield from batch.slice(at, 1).to_pylist()
