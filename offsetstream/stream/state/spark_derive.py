"""Groups, members and what these have, from the cells of groups: `coordinator.groups`, spread over Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from offsetstream.stream.decode import timestamp_of
from offsetstream.tables.derived import cell_of, rows_of_group
from offsetstream.tables.names import DERIVED_TABLES
from offsetstream.tables.schema import load_schema

_GROUP = ("offsets_partition", "group_id")
_PLACE = ("offsets_partition", "log_id", "in_coordinator_partition")  # what every row of a group shares
_ROWS = 10_000  # derived rows that are Python's at a time
Deriver = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_CELL = ("key_type", "key_json", "value_version", "value_json", "record_offset", "record_timestamp_ms")


@contextmanager
def derived_groups(
    groups: DataFrame, live_cells: DataFrame, topic_names: Mapping[str, str]
) -> Iterator[dict[str, DataFrame]]:
    """Give the rows of the `DERIVED_TABLES` for the given groups.

    `groups` has offsets_partition, group_id, log_id, in_coordinator_partition and `exists` (see `derive_group`);
    `live_cells` are their rows of the table `group_cells`; `topic_names` has the names of topic ids. They are
    derived once and kept while the context lasts.
    """
    cells = live_cells.withColumn("record_timestamp_ms", F.unix_millis("record_timestamp"))
    of_group = cells.groupBy(*_GROUP).agg(F.collect_list(F.struct(*_CELL)).alias("cells"))
    joined = groups.join(of_group, list(_GROUP), "left").select(*_PLACE, "group_id", "exists", "cells")
    result = _result_type()
    derived = joined.mapInArrow(_deriver(to_arrow_schema(result), topic_names), result).persist()
    try:
        yield {table: _rows(derived, table) for table in DERIVED_TABLES}
    finally:
        derived.unpersist()


def _rows(derived: DataFrame, table: str) -> DataFrame:
    rows = derived.select(*_PLACE, F.explode(table).alias("row")).select(*_PLACE, "row.*")
    for column in load_schema(table).columns:
        if column.type == "TIMESTAMP":
            rows = rows.withColumn(column.name, timestamp_of(f"{column.name}_ms"))
    return rows.select(*load_schema(table).column_names)


def _result_type() -> StructType:
    rows = ", ".join(f"{table} ARRAY<STRUCT<{_row_type(table)}>>" for table in DERIVED_TABLES)
    result = StructType.fromDDL(f"offsets_partition INT, log_id INT, in_coordinator_partition BOOLEAN, {rows}")
    assert isinstance(result, StructType)  # noqa: S101 - as the columns above make it
    return result


def _row_type(table: str) -> str:
    columns = [column for column in load_schema(table).columns if column.name not in _PLACE]
    return ", ".join(
        f"{column.name}_ms: BIGINT" if column.type == "TIMESTAMP" else f"{column.name}: {column.type}"
        for column in columns
    )


def _deriver(schema: pa.Schema, topic_names: Mapping[str, str]) -> Deriver:
    def derive_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held, size = list[dict[str, Any]](), 0
        for group in _one_by_one(batches):
            row = _derive_row(group, topic_names)
            if row is not None:
                held.append(row)
                size += sum(len(row[table]) for table in DERIVED_TABLES)
            if size >= _ROWS:
                yield pa.RecordBatch.from_pylist(held, schema=schema)
                held, size = [], 0
        yield pa.RecordBatch.from_pylist(held, schema=schema)

    return derive_batches


def _one_by_one(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Yield each row as Python's: the cells of a group may be megabytes."""
    for batch in batches:
        for at in range(batch.num_rows):
            yield from batch.slice(at, 1).to_pylist()


def _derive_row(group: dict[str, Any], topic_names: Mapping[str, str]) -> dict[str, Any] | None:
    cells = [cell_of(cell) for cell in group["cells"] or ()]
    rows = rows_of_group(cells, group["group_id"], topic_names, exists=bool(group["exists"]))
    return None if rows is None else {name: group[name] for name in _PLACE} | rows
