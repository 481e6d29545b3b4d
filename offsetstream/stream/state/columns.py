"""SQL expressions for Spark, which do the same as `tables.record_rows` and `tables.arrow_rows` do for Arrow.

They are SQL text because each call of a Spark function from Python needs several round trips to the JVM: a batch of ten
records spent a quarter of its time on 1,300 of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from offsetstream.stream.decode import is_commit
from offsetstream.tables.names import COMMITS, RECORDS, UNDECODABLE


def partition_number(values: Mapping[int, int], default: int) -> str:
    """Return SQL that maps the row's offsets partition to its value, or to `default`."""
    if not values:
        return str(default)
    pairs = ", ".join(f"{partition}, {value}" for partition, value in values.items())
    return f"coalesce(element_at(map({pairs}), offsets_partition), {default})"


def is_of(table: str) -> str:
    """Return SQL that is true for the decoded records of the history table."""
    decoded = "error IS NULL AND"
    return {
        COMMITS: f"{decoded} {is_commit()}",
        RECORDS: f"{decoded} NOT {is_commit()}",
        UNDECODABLE: "error IS NOT NULL",
    }[table]


def with_value_offsets(decoded: DataFrame) -> DataFrame:
    """Add the two columns that a pass over the log computes (log_pass.py), for single records."""
    return decoded.selectExpr(
        "*",
        "CASE WHEN NOT is_tombstone THEN record_offset END AS value_offset",
        "CASE WHEN is_tombstone THEN record_offset END AS tombstone_offset",
    )


def renamed(rows: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """Add the columns `names` (new name: old name) to the rows."""
    return rows.selectExpr("*", *(f"{old} AS {new}" for new, old in names.items()))
