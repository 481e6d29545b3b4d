"""Which partitions must be loaded before a job can go on with them (rule 5)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from offsetstream.cluster.client import PartitionEnds
from offsetstream.stream.partitions.caught_up_marks import Mark
from offsetstream.stream.partitions.partition_book import OWNED
from offsetstream.tables.small_tables import as_utc


def partitions_to_load(
    rows: Mapping[int, Mapping[str, Any]], ends: Mapping[int, PartitionEnds], safe_retention: timedelta
) -> list[int]:
    """Return the partitions whose rows cannot be continued: never loaded, records gone, or too long behind.

    ``safe_retention``: for how long a tombstone that was not read is sure to be there.
    """
    return [number for number, row in rows.items() if number in ends and _must_load(row, ends[number], safe_retention)]


def is_other_log(row: Mapping[str, Any], ends: PartitionEnds) -> bool:
    """Tell whether the log ends before what was applied of it: it was truncated, or the topic recreated."""
    return row["next_offset"] is not None and row["next_offset"] > ends.high_watermark


def has_lost_records(row: Mapping[str, Any], ends: PartitionEnds) -> bool:
    """Tell whether a stream cannot go on where the partition is applied to: the log does not reach there."""
    is_before = row["next_offset"] is not None and row["next_offset"] < ends.log_start_offset
    return is_before or is_other_log(row, ends)


def _must_load(row: Mapping[str, Any], ends: PartitionEnds, safe_retention: timedelta) -> bool:
    if row["load_state"] != OWNED or has_lost_records(row, ends):
        return True
    caught_up = Mark(as_utc(row["caught_up_at"]), None, row["next_offset"])
    return row["next_offset"] < ends.last_stable_offset and caught_up.age(datetime.now(UTC), None) > safe_retention
