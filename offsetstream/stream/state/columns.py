"""Columns of Spark's as `tables.record_rows` and `tables.arrow_rows` have them of Arrow's."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from offsetstream.stream.decode import is_commit
from offsetstream.tables.names import COMMITS, RECORDS, UNDECODABLE


def partition_number_column(values: Mapping[int, int], default: int) -> Column:
    """Return an expression: the value of the row's offsets partition, `default` where there is none."""
    if not values:
        return F.lit(default)
    pairs = [F.lit(number) for pair in values.items() for number in pair]
    return F.coalesce(F.element_at(F.create_map(*pairs), F.col("offsets_partition")), F.lit(default))


def is_of(table: str) -> Column:
    """Tell whether a decoded record belongs to the history table."""
    error = F.col("error").isNotNull()
    return {COMMITS: ~error & is_commit(), RECORDS: ~error & ~is_commit(), UNDECODABLE: error}[table]


def renamed(rows: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """Return the rows with the columns `names` (new: old) added under their new names."""
    return rows.withColumns({new: F.col(old) for new, old in names.items()})
