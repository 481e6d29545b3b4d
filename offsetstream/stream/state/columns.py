"""Columns of Spark's as `tables.record_rows` and `tables.arrow_rows` have them of Arrow's.

In SQL, as each function that Python calls in the JVM is several round trips, in which other threads take their turns: a
batch of ten records spent a quarter of its time on 1,300 of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from offsetstream.stream.decode import is_commit
from offsetstream.tables.names import COMMITS, RECORDS, UNDECODABLE


def partition_number(values: Mapping[int, int], default: int) -> str:
    """Return the SQL of the value that the row's offsets partition has, `default` where it has none."""
    if not values:
        return str(default)
    pairs = ", ".join(f"{partition}, {value}" for partition, value in values.items())
    return f"coalesce(element_at(map({pairs}), offsets_partition), {default})"


def is_of(table: str) -> str:
    """Return the SQL that tells whether a decoded record belongs to the history table."""
    is_good = "error IS NULL AND"
    return {
        COMMITS: f"{is_good} {is_commit()}",
        RECORDS: f"{is_good} NOT {is_commit()}",
        UNDECODABLE: "error IS NOT NULL",
    }[table]


def renamed(rows: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """Return the rows with the columns `names` (new: old) added under their new names."""
    return rows.selectExpr("*", *(f"{old} AS {new}" for new, old in names.items()))
