"""Transactions that stay open for long: each blocks a whole offsets partition (reference 10.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from offsetstream.stream.partitions.partition_row import PartitionRow


class HangingTransactions:
    """Tells once of each partition whose last stable offset stands for `at_most` or longer, and when it moves."""

    def __init__(self, at_most: timedelta, say: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self._at_most = at_most
        self._say, self._warn = say, warn
        self._told: dict[int, tuple[int, datetime]] = {}  # the last stable offset and its time, by partition

    def look(self, rows: Iterable[PartitionRow]) -> None:
        """Take in the present rows of `offsets_partitions`."""
        now = datetime.now(UTC)
        for row in rows:
            number, stands = row.offsets_partition, _stands(row)
            if number in self._told and self._told[number] != stands:
                _, told_since = self._told.pop(number)
                self._say(f"Offsets partition {number} goes on after {_minutes(now - told_since)}")
            if stands and number not in self._told and now - stands[1] >= self._at_most:
                self._told[number] = stands
                waiting = (row.high_watermark or 0) - stands[0]
                self._warn(
                    f"Offsets partition {number} is blocked at offset {stands[0]:,} by a transaction that has been "
                    f"open for {_minutes(now - stands[1])}: {waiting:,} records wait behind it; "
                    "'offsetstream partitions --blocked' names its producer, and the command that ends it"
                )


def _stands(row: PartitionRow) -> tuple[int, datetime] | None:
    if row.last_stable_offset is None or row.last_stable_offset_since is None:
        return None
    return row.last_stable_offset, row.last_stable_offset_since


def _minutes(duration: timedelta) -> str:
    return f"{duration.total_seconds() / 60:.1f} minutes"
