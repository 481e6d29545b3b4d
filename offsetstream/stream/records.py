"""Raw records are decoded in Spark, with the codec's pandas UDF, measured, and collected if they are few.

Expressions are SQL text, because each call of a Spark function from Python needs several round trips to the JVM: a
batch of ten records spent a quarter of its time on 1,300 of them. Most batches are small, so the Spark job that decodes
one brings it to the driver: further Spark jobs would take most of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import StructType

from offsetstream.codec.decoding import COMMIT_KEY_TYPES, JSON_COLUMNS
from offsetstream.codec.udf import DECODED_TYPE, decode_series
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.tables.filters import NO_FILTERS, Filters
from offsetstream.tables.names import COMMITS, RECORDS
from offsetstream.tables.rows import FIRST_MS, LAST_MS, SMALL_BYTES, Size, by_table, supported_timestamps

FILTERED = "is_filtered"
# For decoded records that are used more than once: with its raw bytes, a record may have megabytes.
ON_DISK = StorageLevel.DISK_ONLY
# The length of a record. JSON counts too: it may be much longer than the value.
_LENGTH = " + ".join(f"coalesce(octet_length({name}), 0)" for name in ("key", "value", *JSON_COLUMNS))
_BYTES = "bytes"
_IN_LOG_ORDER = [("offsets_partition", "ascending"), ("record_offset", "ascending")]


class Decoder:
    """Decodes batches with one UDF object: creating it in the JVM takes longer than using it."""

    def __init__(self, placed_by: int | None, filters: Filters = NO_FILTERS) -> None:
        self._udf = _udf(placed_by, filters)

    def decode(self, raw: DataFrame) -> DataFrame:
        """Add the columns of the codec, `in_coordinator_partition` and timestamps to raw records.

        All columns of `raw` stay. With filters, the boolean column FILTERED marks filtered records:
        `without_filtered` removes these and the column.
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


def _timestamp_of(name: str) -> str:
    milliseconds = f"decoded.{name}_ms"
    return f"CASE WHEN {_is_supported(milliseconds)} THEN timestamp_millis({milliseconds}) END AS {name}"


def _is_supported(milliseconds: str) -> str:
    """Return the SQL condition that the time is within the years 1 to 9999, as `rows.supported_timestamps`."""
    return f"{milliseconds} BETWEEN {FIRST_MS} AND {LAST_MS}"


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


def in_coordinator_partition(group_id: pa.Array, offsets_partition: pa.Array, placed_by: int | None) -> pa.Array:
    """Return whether each record is in the partition of its group's coordinator; null if it has no group.

    `placed_by`: the number of partitions in Kafka's hash of group ids. None: the latest records decide. New records
    then count as the latest, and `state.find_homes` corrects the older ones.
    """
    if placed_by is None:
        return pc.if_else(pc.is_null(group_id), pa.scalar(None, pa.bool_()), pa.scalar(True))
    groups = group_id.dictionary_encode()
    home = [None if group is None else partition_for(group, placed_by) for group in groups.dictionary.to_pylist()]
    return pc.equal(pa.array(home, pa.int32()).take(groups.indices), offsets_partition)


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


def is_commit() -> str:
    """Return SQL that is true for offset commits and their tombstones."""
    return f"key_type IN ({', '.join(map(str, COMMIT_KEY_TYPES))})"


def as_few_tasks(records: DataFrame) -> DataFrame:
    """Coalesce the records to one task for each core of the executors: every task of a Python stage costs time."""
    return records.coalesce(few_tasks(records.sparkSession))


def few_tasks(spark: SparkSession) -> int:
    """Return the number of cores of the executors, at least 2."""
    return max(2, spark.sparkContext.defaultParallelism)


@dataclass(frozen=True)
class BatchSize:
    """The number of records of a decoded batch for each history table."""

    records: dict[str, int]

    @property
    def tables(self) -> list[str]:
        """The history tables that get records."""
        return [table for table, count in self.records.items() if count]

    @property
    def has_state(self) -> bool:
        """Whether any record changes the state of coordinators."""
        return self.records[COMMITS] > 0 or self.has_cells

    @property
    def has_cells(self) -> bool:
        """Whether there are records other than offset commits."""
        return self.records[RECORDS] > 0


def batch_size(decoded: pa.Table) -> BatchSize:
    """Measure a decoded batch."""
    kinds = by_table(decoded)
    return BatchSize({table: pc.sum(is_of, min_count=0).as_py() for table, is_of in kinds.items()})


@dataclass(frozen=True)
class Share:
    """The records of one offsets partition: their number, and the newest timestamp (milliseconds since 1970).

    The timestamp is None if no record has one that an engine can store. `filtered`: the number of filtered records.
    """

    records: int
    newest_ms: int | None
    filtered: int = 0


def add_shares(shares: dict[int, Share], more: Mapping[int, Share]) -> None:
    """Add `more` to the shares."""
    for number, share in more.items():
        before = shares.get(number, Share(0, None))
        times = [time for time in (before.newest_ms, share.newest_ms) if time is not None]
        newest, filtered = max(times, default=None), before.filtered + share.filtered
        shares[number] = Share(before.records + share.records, newest, filtered)


@dataclass(frozen=True)
class Part:
    """Decoded records, with their number and the bytes of their texts.

    `in_spark` returns them as a frame. `brought`: the same records on the driver, if they came there already.
    """

    in_spark: Callable[[], DataFrame]
    size: Size
    brought: pa.Table | None

    @property
    def decoded(self) -> DataFrame:
        """The records in Spark."""
        return self.in_spark()

    def fetched(self) -> Records:
        """Return the records on the driver if they fit into its memory."""
        if self.brought is not None:
            return self.brought
        return self.decoded.toArrow() if self.size.fits_driver else self


Records: TypeAlias = pa.Table | Part  # decoded records on the driver, or too many for it


def by_partition(records: pa.Table) -> dict[int, Share]:
    """Return the share of each offsets partition. The records may be raw or decoded."""
    times = supported_timestamps(records["record_timestamp"]).cast(pa.int64())
    counted = pa.table({"number": records["offsets_partition"], "time": times}).group_by("number", use_threads=False)
    found = counted.aggregate([([], "count_all"), ("time", "max")]).to_pylist()
    return {
        row["number"]: Share(row["count_all"], None if row["time_max"] is None else row["time_max"] // 1000)
        for row in found
    }


def without_filtered(decoded: pa.Table) -> tuple[pa.Table, dict[int, Share]]:
    """Remove the filtered records. Return the others, and the shares of all records."""
    if FILTERED not in decoded.column_names:
        return decoded, by_partition(decoded)
    out, kept = decoded.filter(decoded[FILTERED]), decoded.filter(pc.invert(decoded[FILTERED])).drop_columns(FILTERED)
    shares = by_partition(kept)
    filtered = by_partition(out).items()
    add_shares(shares, {number: replace(share, filtered=share.records) for number, share in filtered})
    return kept, shares


def collect(decoded: DataFrame) -> pa.Table:
    """Collect a decoded batch on the driver. Only undecodable records keep their raw bytes."""
    raw = (f"CASE WHEN error IS NOT NULL THEN {name} END AS {name}" for name in ("value", "key_bytes"))
    return decoded.drop("key").selectExpr("* EXCEPT (value, key_bytes)", *raw).toArrow()


def collect_small(decoded: DataFrame, at_most: int) -> pa.Table | None:
    """Collect a batch of up to `at_most` records like `collect`, in the Spark job that reads it.

    Records that are longer than their share of the driver's memory come without their bytes. If the total is small
    enough, a second job gets these. Return None if they are too long.
    """
    share = SMALL_BYTES // max(1, at_most)
    is_long = f"{_LENGTH} > {share}"
    names = ("value", "key_bytes", *JSON_COLUMNS)
    short = (f"CASE WHEN NOT ({is_long}) THEN {name} END AS {name}" for name in names)
    found = collect(decoded.selectExpr(f"* EXCEPT ({', '.join(names)})", *short, f"{_LENGTH} AS {_BYTES}"))
    lengths = found[_BYTES]
    if pc.sum(lengths, min_count=0).as_py() > SMALL_BYTES:
        return None
    found, is_short = found.drop_columns(_BYTES), pc.less_equal(lengths, share)
    if pc.all(is_short, min_count=0).as_py():
        return found
    long = collect(decoded.where(is_long)).select(found.column_names)
    return pa.concat_tables([found.filter(is_short), long]).sort_by(_IN_LOG_ORDER)
