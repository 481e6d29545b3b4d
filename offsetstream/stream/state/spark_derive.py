"""Derive groups, members and their rows from the cells of groups: `coordinator.groups` in Spark tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from offsetstream.tables.derived import GROUP_CONSTANTS, cell_of, rows_of_group
from offsetstream.tables.names import DERIVED_TABLES
from offsetstream.tables.schema import load_schema
from offsetstream.tables.spark_rows import in_batches, struct_fields, to_python_one_by_one, to_table_columns

_GROUP = ("offsets_partition", "group_id")
Deriver = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_CELL = ("key_type", "key_json", "value_version", "value_json", "record_offset", "record_timestamp_ms")


@contextmanager
def derived_groups(
    groups: DataFrame, live_cells: DataFrame, topic_names: Mapping[str, str]
) -> Iterator[dict[str, DataFrame]]:
    """Yield the rows of the `DERIVED_TABLES` for the groups. They are derived once, and kept while the context lasts.

    `groups`: offsets_partition, group_id, log_id, in_coordinator_partition and `exists` (see `derive_group`).
    `live_cells`: their rows of the table `group_cells`. `topic_names`: names by topic id.
    """
    cells = live_cells.withColumn("record_timestamp_ms", F.unix_millis("record_timestamp"))
    by_group = cells.groupBy(*_GROUP).agg(F.collect_list(F.struct(*_CELL)).alias("cells"))
    joined = groups.join(by_group, list(_GROUP), "left").select(*GROUP_CONSTANTS, "group_id", "exists", "cells")
    result = _result_type()
    derived = joined.mapInArrow(_deriver(to_arrow_schema(result), topic_names), result).persist()
    try:
        yield {table: _rows(derived, table) for table in DERIVED_TABLES}
    finally:
        derived.unpersist()


def _rows(derived: DataFrame, table: str) -> DataFrame:
    rows = derived.select(*GROUP_CONSTANTS, F.explode(table).alias("row")).select(*GROUP_CONSTANTS, "row.*")
    return to_table_columns(rows, load_schema(table))


def _result_type() -> StructType:
    rows = ", ".join(f"{table} ARRAY<STRUCT<{_row_type(table)}>>" for table in DERIVED_TABLES)
    result = StructType.fromDDL(f"offsets_partition INT, log_id INT, in_coordinator_partition BOOLEAN, {rows}")
    assert isinstance(result, StructType)  # noqa: S101 - as the columns above make it
    return result


def _row_type(table: str) -> str:
    return struct_fields(column for column in load_schema(table).columns if column.name not in GROUP_CONSTANTS)


def _deriver(schema: pa.Schema, topic_names: Mapping[str, str]) -> Deriver:
    def derive_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        derived = (_derive_row(group, topic_names) for group in to_python_one_by_one(batches))
        yield from in_batches((row for row in derived if row is not None), DERIVED_TABLES, schema)

    return derive_batches


def _derive_row(group: dict[str, Any], topic_names: Mapping[str, str]) -> dict[str, Any] | None:
    cells = [cell_of(cell) for cell in group["cells"] or ()]
    rows = rows_of_group(cells, group["group_id"], topic_names, exists=bool(group["exists"]))
    return None if rows is None else {name: group[name] for name in GROUP_CONSTANTS} | rows
