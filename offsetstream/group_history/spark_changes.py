"""Write the decoded history with Spark, for inputs that are too large for the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, reduce

import pyarrow as pa
from pyspark import StorageLevel, inheritable_thread_target
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from offsetstream.group_history.decoding import COLUMNS, ORDER, decoded_changes
from offsetstream.group_history.spans import BEFORE_SPAN, IN_SPAN, Decoding, Spans, within
from offsetstream.tables.names import DECODED_TABLES, GROUP_CELLS, RECORDS
from offsetstream.tables.parallel import in_parallel
from offsetstream.tables.schema import load_schema
from offsetstream.tables.spark_rows import in_batches, struct_fields, to_python_one_by_one, to_table_columns
from offsetstream.tables.write import TableWriter

_LOG = ("offsets_partition", "log_id")
_GROUP = ["offsets_partition", "group_id"]
_CELL = (*_LOG, "group_id", "key_type", "key_json")
_Deriver = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class SparkChangeWriter:
    """A `ChangeWriter` for DataFrames. It reads the records from the history, where they were just written."""

    def __init__(self, writer: TableWriter, topic_names: Mapping[str, str]) -> None:
        self._writer = writer
        self._topic_names = topic_names

    def append_batch(self, records: DataFrame, decoding: Decoding) -> None:  # noqa: ARG002 - they are in the history
        """Append the changes by a batch; see `ChangeWriter`."""
        history = self._writer.rows(RECORDS)
        rows = recorded(history, decoding.spans)
        groups = rows.where(within(decoding.of(is_stored=False), IN_SPAN)).select(*_GROUP).distinct()
        present = self._writer.rows(GROUP_CELLS).join(groups, _GROUP, "left_semi")
        self._append([rows, _rows(present), last_before(history, decoding.of(is_stored=True))], decoding)

    def append_load(self, records: DataFrame, cells: DataFrame, decoding: Decoding) -> None:  # noqa: ARG002 - likewise
        """Append the changes by loaded partitions; see `ChangeWriter`."""
        history, stored = self._writer.rows(RECORDS), decoding.of(is_stored=True)
        rows = [recorded(history, decoding.spans), last_before(history, stored)]
        if stored:
            log_id = F.create_map(*(F.lit(number) for log in stored for number in log))[F.col("offsets_partition")]
            is_group_record = F.col("error").isNull() & F.col("key_json").isNotNull()
            final = cells.withColumn("log_id", log_id).where(is_group_record & ~F.col("is_tombstone"))
            rows.append(_rows(final.where(F.col("log_id").isNotNull()), is_final=True))
        self._append(rows, decoding)

    def _append(self, rows: list[DataFrame], decoding: Decoding) -> None:
        with changes_in_spark(rows, decoding, self._topic_names) as found:
            steps = [partial(self._writer.append, table, changes, decoding.batch) for table, changes in found.items()]
            in_parallel(steps, inheritable_thread_target(self._writer.spark))


def recorded(records: DataFrame, spans: Spans) -> DataFrame:
    """Return the rows of `group_records` in the spans, with `COLUMNS`."""
    return _rows(records.where(within(spans, IN_SPAN)))


def last_before(records: DataFrame, spans: Spans) -> DataFrame:
    """Return the last row of each cell before the spans, without tombstones."""
    rest = [name for name in (*COLUMNS, "is_tombstone") if name not in (*_CELL, "is_final")]
    found = records.where(within(spans, BEFORE_SPAN)).groupBy(*_CELL)
    last = found.agg(F.max_by(F.struct(*rest), F.col("record_offset")).alias("last")).select(*_CELL, "last.*")
    return _rows(last.where(~F.col("is_tombstone")))


def _rows(records: DataFrame, *, is_final: bool = False) -> DataFrame:
    """Return records or cells with `COLUMNS`. `is_final`: they are the state at the end of a span."""
    return records.withColumn("is_final", F.lit(is_final)).select(*COLUMNS)


@contextmanager
def changes_in_spark(
    rows: Iterable[DataFrame], decoding: Decoding, topic_names: Mapping[str, str]
) -> Iterator[dict[str, DataFrame]]:
    """Yield the changes in the rows, as rows of the `DECODED_TABLES`; see `decoding.decoded_changes`."""
    result = StructType.fromDDL(", ".join(f"{table} ARRAY<STRUCT<{_row_type(table)}>>" for table in DECODED_TABLES))
    assert isinstance(result, StructType)  # noqa: S101 - as the columns above make it
    work = _deriver(to_arrow_schema(result), decoding, dict(topic_names))
    united = reduce(DataFrame.unionByName, rows)
    # All rows of a group go to one task, in log order.
    ordered = united.repartition(*_LOG, "group_id").sortWithinPartitions(*ORDER)
    found = ordered.mapInArrow(work, result).persist(StorageLevel.DISK_ONLY)
    try:
        yield {table: _changes(found, table) for table in DECODED_TABLES}
    finally:
        found.unpersist()


def _changes(found: DataFrame, table: str) -> DataFrame:
    return to_table_columns(found.select(F.explode(table).alias("row")).select("row.*"), load_schema(table).unsigned)


def _row_type(table: str) -> str:
    return struct_fields(load_schema(table).unsigned.columns)


def _deriver(schema: pa.Schema, decoding: Decoding, topic_names: Mapping[str, str]) -> _Deriver:
    def derive(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = decoded_changes(to_python_one_by_one(batches), decoding.spans, topic_names, decoding.written)
        yield from in_batches(found, DECODED_TABLES, schema)

    return derive
