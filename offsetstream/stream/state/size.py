"""How large a batch is, and bringing a small one to the driver: most are, and Spark's jobs would be all their time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from offsetstream.codec.group_records import JSON_COLUMNS
from offsetstream.stream.decode import FILTERED
from offsetstream.stream.state.columns import is_of
from offsetstream.tables import record_rows
from offsetstream.tables.arrow_rows import held
from offsetstream.tables.engines import FEW_ROWS, SMALL_BYTES, Size
from offsetstream.tables.names import COMMITS, RECORD_TABLES, RECORDS

Held: TypeAlias = DataFrame | pa.Table  # decoded records in Spark, or on the driver
# Where decoded records wait that are used more than once: with their raw bytes they may be megabytes each.
ON_DISK = StorageLevel.DISK_ONLY


# Of a record: a short value may be a long JSON.
_LENGTH = " + ".join(f"coalesce(octet_length({name}), 0)" for name in ("key", "value", *JSON_COLUMNS))
_BYTES = "bytes"
_IN_LOG_ORDER = [("offsets_partition", "ascending"), ("record_offset", "ascending")]


@dataclass(frozen=True)
class BatchSize:
    """The records of a decoded batch by the history table that they go to, and the bytes that they are."""

    records: dict[str, int]
    bytes: int

    @property
    def size(self) -> Size:
        """The size of all of them."""
        return Size(sum(self.records.values()), self.bytes)

    @property
    def tables(self) -> list[str]:
        """The history tables that get any."""
        return [table for table, count in self.records.items() if count]

    @property
    def has_state(self) -> bool:
        """Whether any record says something of the coordinators' state."""
        return self.records[COMMITS] > 0 or self.has_cells

    @property
    def has_cells(self) -> bool:
        """Whether any record but offset commits does."""
        return self.records[RECORDS] > 0


def measure(decoded: Held) -> BatchSize:
    """Count a decoded batch: in one Spark job, or here."""
    if isinstance(decoded, pa.Table):
        here = {table: pc.sum(record_rows.is_of(table, decoded), min_count=0).as_py() for table in RECORD_TABLES}
        return BatchSize(here, decoded.nbytes)
    counts = (f"count_if({is_of(table)}) AS {table}" for table in RECORD_TABLES)
    row = decoded.selectExpr(*counts, f"coalesce(sum({_LENGTH}), 0) AS bytes").head()
    return BatchSize({table: row[table] if row else 0 for table in RECORD_TABLES}, row["bytes"] if row else 0)


@dataclass(frozen=True)
class Share:
    """What there is of one offsets partition: so many records, the newest of that time (milliseconds since 1970).

    Without a time where no record has one that an engine can hold. `filtered`: how many of them the filters leave out.
    """

    records: int
    newest_ms: int | None
    filtered: int = 0


def add_shares(shares: dict[int, Share], more: Mapping[int, Share]) -> None:
    """Add to the shares what there is more."""
    for number, share in more.items():
        before = shares.get(number, Share(0, None))
        times = [time for time in (before.newest_ms, share.newest_ms) if time is not None]
        newest, filtered = max(times, default=None), before.filtered + share.filtered
        shares[number] = Share(before.records + share.records, newest, filtered)


def by_partition(records: Held) -> dict[int, Share]:
    """Return the share of each offsets partition in the records, raw or decoded."""
    if isinstance(records, DataFrame):
        newest = F.max(F.unix_millis("record_timestamp"))
        rows = records.groupBy("offsets_partition").agg(F.count("*"), newest).collect()
        return {row[0]: Share(*row[1:]) for row in rows}
    times = held(records["record_timestamp"]).cast(pa.int64())
    counted = pa.table({"number": records["offsets_partition"], "time": times}).group_by("number", use_threads=False)
    found = counted.aggregate([([], "count_all"), ("time", "max")]).to_pylist()
    return {
        row["number"]: Share(row["count_all"], None if row["time_max"] is None else row["time_max"] // 1000)
        for row in found
    }


def sifted(decoded: Held) -> tuple[Held, dict[int, Share]]:
    """Return decoded records without those that filters leave out, and what there is of these."""
    if isinstance(decoded, pa.Table):
        if FILTERED not in decoded.column_names:
            return decoded, {}
        out, kept = decoded.filter(decoded[FILTERED]), decoded.filter(pc.invert(decoded[FILTERED]))
        return kept.drop_columns(FILTERED), _filtered(out)
    if FILTERED not in decoded.columns:
        return decoded, {}
    return decoded.where(f"NOT {FILTERED}").drop(FILTERED), _filtered(decoded.where(FILTERED))


def _filtered(records: Held) -> dict[int, Share]:
    return {number: replace(share, filtered=share.records) for number, share in by_partition(records).items()}


def collect(decoded: DataFrame) -> pa.Table:
    """Bring a decoded batch to the driver; only undecodable records keep their raw bytes."""
    raw = (f"CASE WHEN error IS NOT NULL THEN {name} END AS {name}" for name in ("value", "key_bytes"))
    return decoded.drop("key").selectExpr("* EXCEPT (value, key_bytes)", *raw).toArrow()


def collect_few(decoded: DataFrame, at_most: int) -> pa.Table | None:
    """Bring a decoded batch of at most so many records to the driver as `collect` does, by the job that reads it.

    What is longer than its share of what the driver can hold comes without its bytes; and then with them, by another
    job, if all together are not too long. None if they are, or may be too many.
    """
    if at_most > FEW_ROWS:
        return None
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
