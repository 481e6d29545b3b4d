"""Measure records, and collect small batches on the driver: most are, and Spark jobs would dominate their time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame

from offsetstream.codec.decoding import JSON_COLUMNS
from offsetstream.stream.decode import FILTERED
from offsetstream.tables import record_rows
from offsetstream.tables.arrow_rows import supported_timestamps
from offsetstream.tables.names import COMMITS, RECORDS
from offsetstream.tables.size import SMALL_BYTES, Size

# For decoded records that are used more than once: with its raw bytes, a record may have megabytes.
ON_DISK = StorageLevel.DISK_ONLY


# The length of a record. JSON counts too: it may be much longer than the value.
_LENGTH = " + ".join(f"coalesce(octet_length({name}), 0)" for name in ("key", "value", *JSON_COLUMNS))
_BYTES = "bytes"
_IN_LOG_ORDER = [("offsets_partition", "ascending"), ("record_offset", "ascending")]


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
    kinds = record_rows.by_table(decoded)
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
