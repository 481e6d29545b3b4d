"""Which partitions must be loaded before a job can go on with them (rule 5)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.stream.partitions.partition_row import PartitionRow


def partitions_to_load(
    rows: Mapping[int, PartitionRow], ends: Mapping[int, PartitionEnds], safe_retention: timedelta
) -> list[int]:
    """Return the partitions whose rows cannot be continued: never loaded, records gone, or too long behind.

    `safe_retention`: for how long a tombstone that was not read is sure to be there.
    """
    return [number for number, row in rows.items() if number in ends and _must_load(row, ends[number], safe_retention)]


def _must_load(row: PartitionRow, ends: PartitionEnds, safe_retention: timedelta) -> bool:
    if not row.is_owned or row.has_lost_records(ends):
        return True
    if row.applied >= ends.last_stable_offset:
        return False
    return row.caught_up is None or row.caught_up.age(datetime.now(UTC), None) > safe_retention
