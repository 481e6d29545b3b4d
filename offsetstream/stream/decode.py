"""Decode raw records into flat columns in Spark, with the codec's pandas UDF.

Expressions are SQL text, because each call of a Spark function from Python needs several round trips to the JVM: a
batch of ten records spent a quarter of its time on 1,300 of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import StructType

from offsetstream.codec.udf import DECODED_TYPE, decode_series
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.coordinator.reduction import COMMIT_KEY_TYPES
from offsetstream.tables.arrow_rows import FIRST_MS, LAST_MS
from offsetstream.tables.filters import NO_FILTERS, Filters

FILTERED = "is_filtered"


class Decoder:
    """Decodes batches with one UDF object: creating it in the JVM takes longer than using it."""

    def __init__(self, placed_by: int | None, filters: Filters = NO_FILTERS) -> None:
        self._udf = _udf(placed_by, filters)

    def decode(self, raw: DataFrame) -> DataFrame:
        """Add the columns of the codec, `in_coordinator_partition` and timestamps to raw records.

        All columns of `raw` stay. With filters, the boolean column FILTERED marks filtered records; `sifted` removes
        these and the column.
        """
        decoded = as_few_tasks(raw).select("*", self._udf("offsets_partition", "key", "value").alias("decoded"))
        return decoded.selectExpr(
            "* EXCEPT (record_timestamp, decoded)",
            "decoded.*",
            # A producer may set any timestamp (message.timestamp.after.max.ms).
            f"CASE WHEN {_is_supported('unix_millis(record_timestamp)')} THEN record_timestamp END AS record_timestamp",
            _timestamp_of("commit_timestamp"),
            _timestamp_of("expire_timestamp"),
            "key AS key_bytes",
            "CAST(length(value) AS INT) AS value_size",
        )


def decode(raw: DataFrame, placed_by: int | None, filters: Filters = NO_FILTERS) -> DataFrame:
    """Decode raw records with a `Decoder` of their own."""
    return Decoder(placed_by, filters).decode(raw)


def with_value_offsets(decoded: DataFrame) -> DataFrame:
    """Add the two columns that a pass over the log computes (log_pass.py), for single records."""
    return decoded.selectExpr(
        "*",
        "CASE WHEN NOT is_tombstone THEN record_offset END AS value_offset",
        "CASE WHEN is_tombstone THEN record_offset END AS tombstone_offset",
    )


def partition_number(values: Mapping[int, int], default: int) -> str:
    """Return SQL that maps the row's offsets partition to its value, or to `default`."""
    if not values:
        return str(default)
    pairs = ", ".join(f"{partition}, {value}" for partition, value in values.items())
    return f"coalesce(element_at(map({pairs}), offsets_partition), {default})"


def in_coordinator_partition(group_id: pa.Array, offsets_partition: pa.Array, placed_by: int | None) -> pa.Array:
    """Return whether each record is in the partition of its group's coordinator; null if it has no group.

    `placed_by`: the number of partitions in Kafka's hash of group ids. None: the latest records decide. New records
    then count as the latest, and `state/homes.py` corrects the older ones.
    """
    if placed_by is None:
        return pc.if_else(pc.is_null(group_id), pa.scalar(None, pa.bool_()), pa.scalar(True))
    groups = group_id.dictionary_encode()
    home = [None if group is None else partition_for(group, placed_by) for group in groups.dictionary.to_pylist()]
    return pc.equal(pa.array(home, pa.int32()).take(groups.indices), offsets_partition)


def as_few_tasks(records: DataFrame) -> DataFrame:
    """Coalesce the records to one task for each core of the executors: every task of a Python stage costs time."""
    return records.coalesce(few_tasks(records.sparkSession))


def few_tasks(spark: SparkSession) -> int:
    """Return the number of cores of the executors, at least 2."""
    return max(2, spark.sparkContext.defaultParallelism)


def _timestamp_of(name: str) -> str:
    milliseconds = f"decoded.{name}_ms"
    return f"CASE WHEN {_is_supported(milliseconds)} THEN timestamp_millis({milliseconds}) END AS {name}"


def _is_supported(milliseconds: str) -> str:
    """Return the SQL condition that the time is within the years 1 to 9999, as `arrow_rows.supported_timestamps`."""
    return f"{milliseconds} BETWEEN {FIRST_MS} AND {LAST_MS}"


def is_commit() -> str:
    """Return SQL that is true for offset commits and their tombstones."""
    return f"key_type IN ({', '.join(map(str, COMMIT_KEY_TYPES))})"


def _udf(placed_by: int | None, filters: Filters) -> Callable[..., Column]:
    def decode_batch(offsets_partition: pd.Series, key: pd.Series, value: pd.Series) -> pd.DataFrame:
        frame = decode_series(key, value)
        places = pa.array(offsets_partition, pa.int32())
        inside = in_coordinator_partition(pa.array(frame["group_id"]), places, placed_by)
        frame = frame.assign(in_coordinator_partition=pd.arrays.ArrowExtensionArray(inside))
        if not filters:
            return frame
        names = pa.table({name: pa.array(frame[name]) for name in ("error", "group_id", "topic")})
        return frame.assign(**{FILTERED: pd.arrays.ArrowExtensionArray(filters.filtered(names))})

    decoded_type = StructType(list(DECODED_TYPE.fields)).add("in_coordinator_partition", "boolean")
    if filters:
        decoded_type = decoded_type.add(FILTERED, "boolean")
    # Marked as not deterministic, so that Spark neither repeats it nor pushes a filter below it.
    udf: Any = pandas_udf(decode_batch, returnType=decoded_type)  # type: ignore[call-overload]  # as in codec.udf
    nondeterministic: Callable[..., Column] = udf.asNondeterministic()
    return nondeterministic
