"""Figures of the offsets partitions for metrics and health checks. Any thread may compute them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from offsetstream.metrics.replay_position import ReplayPosition
from offsetstream.stream.partitions.partition_row import PartitionRow
from offsetstream.tables.names import UNLOADED


def partition_figures(rows: Iterable[PartitionRow], max_transaction_timeout: timedelta) -> ReplayPosition:
    """Return the current figures. Records count up to the last stable offset that the job has seen."""
    now, found = datetime.now(UTC), list(rows)
    behind = {row.offsets_partition: offsets_to_go(row) for row in found}
    open_since = [row.last_stable_offset_since for row in found if row.last_stable_offset_since is not None]
    return ReplayPosition(
        by_state=Counter((row.load_state or UNLOADED).lower() for row in found),
        leaderless=sum(row.coordinator_available is False for row in found),
        behind_records=sum(behind.values()),
        behind_seconds=max((_since(row, now) for row in found if behind[row.offsets_partition]), default=0.0),
        blocked=len(open_since),
        blocked_records=sum(_blocked(row) for row in found),
        hanging=sum(now - since >= max_transaction_timeout for since in open_since),
    )


def offsets_to_go(row: PartitionRow) -> int:
    """Return the number of offsets that the job has seen but not applied, up to the last stable offset."""
    applied = max(row.applied, row.log_start_offset or 0)
    return max(0, (row.last_stable_offset or 0) - applied)


def _blocked(row: PartitionRow) -> int:
    return 0 if row.high_watermark is None else row.high_watermark - (row.last_stable_offset or 0)


def _since(row: PartitionRow, now: datetime) -> float:
    """Return seconds since the partition was caught up, or since its first load started."""
    since = row.caught_up_at or row.load_started_at or now
    return max(0.0, (now - since).total_seconds())
