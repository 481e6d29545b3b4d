"""Rows in Spark that are to replace stored ones, as `matching.with_users_columns` has them in Arrow."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from offsetstream.tables.merge import DELETED, Merge
from offsetstream.tables.sql import quoted
from offsetstream.tables.store import EVERY_ROW


def replacing_rows(stored: DataFrame, source: DataFrame, merge: Merge) -> DataFrame:
    """Return the source's rows that are not deleted, with what a user's columns have for their keys now."""
    rows, key = source.where(~F.col(DELETED)).drop(DELETED), merge.schema.key
    users = [name for name in stored.columns if name not in merge.schema.column_names]
    if not users:
        return rows
    kept = stored.where(merge.replace_where or EVERY_ROW).select(*key, *map(quoted, users)).dropDuplicates([*key])
    same = [F.col(f"source.{name}").eqNullSafe(F.col(f"kept.{name}")) for name in key]
    columns = [*(f"source.{name}" for name in merge.schema.column_names), *(f"kept.{quoted(name)}" for name in users)]
    return rows.alias("source").join(kept.alias("kept"), same, "left").select(*columns)
