"""Reduce records to the last one of each cell, and find out whether their groups exist.

A cell is the target of one record key: a committed offset (key versions 0 and 1 are the same cell), or another key.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from offsetstream.coordinator.reduction import COMMIT_CELL, GROUP_CELL, GROUP_KEY_TYPES
from offsetstream.stream.state.columns import is_of
from offsetstream.tables.names import COMMITS, RECORDS


def with_value_offsets(decoded: DataFrame) -> DataFrame:
    """Add the two columns that a pass over the log computes (log_pass.py), for single records."""
    return decoded.selectExpr(
        "*",
        "CASE WHEN NOT is_tombstone THEN record_offset END AS value_offset",
        "CASE WHEN is_tombstone THEN record_offset END AS tombstone_offset",
    )


def last_record_per_cell(decoded: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Reduce decoded records to the last of each cell: (offset commits, all others), without undecodable ones."""
    return _reduce(decoded.where(is_of(COMMITS)), COMMIT_CELL), _reduce(decoded.where(is_of(RECORDS)), GROUP_CELL)


def group_facts(commits: DataFrame, cells: DataFrame) -> DataFrame:
    """Return for each group of a reduced batch what decides whether it exists (reference 5.9, rows 6, 7 and 13).

    Columns: offsets_partition, group_id, in_coordinator_partition, commit_offset (the last commit's record),
    group_tombstone_offset (the last record that removed the group), is_touched (the batch may change its rows).
    """
    identity = ("offsets_partition", "group_id", "in_coordinator_partition")
    by_commits = commits.groupBy(*identity).agg(
        F.max("value_offset").alias("commit_offset"),
        F.lit(None).cast("bigint").alias("group_tombstone_offset"),
        F.max(F.col("is_tombstone")).alias("is_touched"),
    )
    removes_group = F.col("key_type").isin(*GROUP_KEY_TYPES)
    by_cells = cells.groupBy(*identity).agg(
        F.lit(None).cast("bigint").alias("commit_offset"),
        F.max(F.when(removes_group, F.col("tombstone_offset"))).alias("group_tombstone_offset"),
        F.lit(True).alias("is_touched"),
    )
    columns = ("commit_offset", "group_tombstone_offset", "is_touched")
    return by_commits.unionByName(by_cells).groupBy(*identity).agg(*(F.max(name).alias(name) for name in columns))


def _reduce(records: DataFrame, cell: tuple[str, ...]) -> DataFrame:
    kept = ("value_offset", "tombstone_offset")
    columns = [name for name in records.columns if name not in (*cell, *kept)]
    reduced = records.groupBy(*cell).agg(_last(columns), *(F.max(name).alias(name) for name in kept))
    return reduced.select(*cell, "last.*", *kept)


def _last(columns: list[str]) -> Column:
    return F.max_by(F.struct(*columns), F.col("record_offset")).alias("last")
