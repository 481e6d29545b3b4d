"""How far the offsets partitions are replayed, held by the driver as {offsets partition: number}."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F


def number_of(values: Mapping[int, int], default: int) -> Column:
    """Return an expression: the value of the row's offsets partition, ``default`` where there is none."""
    if not values:
        return F.lit(default)
    pairs = [F.lit(number) for pair in values.items() for number in pair]
    return F.coalesce(F.element_at(F.create_map(*pairs), F.col("offsets_partition")), F.lit(default))
