"""Which partitions must be loaded before the job can continue with them (rule 5)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.stream.partitions.partition_row import PartitionRow


def partitions_to_load(
    rows: Mapping[int, PartitionRow], ends: Mapping[int, PartitionEnds], safe_retention: timedelta
) -> list[int]:
    """Return the partitions that were never loaded, have lost unread records, or were not caught up for too long.

    `safe_retention`: how long an unread tombstone is guaranteed to stay.
    """
    return [number for number, row in rows.items() if number in ends and _must_load(row, ends[number], safe_retention)]


def _must_load(row: PartitionRow, ends: PartitionEnds, safe_retention: timedelta) -> bool:
    if not row.is_owned or row.has_lost_records(ends):
        return True
    if row.applied >= ends.last_stable_offset:
        return False
    return row.caught_up is None or row.caught_up.age(datetime.now(UTC), None) > safe_retention
