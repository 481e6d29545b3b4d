"""Transactions that stay open for long: each blocks a whole offsets partition (reference 10.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from offsetstream.stream.partitions.rows import PartitionRow


class HangingTransactions:
    """Warns once if a last stable offset has not moved for `at_most`, and logs when it moves again."""

    def __init__(self, at_most: timedelta, say: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self._at_most = at_most
        self._say, self._warn = say, warn
        self._reported: dict[int, tuple[int, datetime]] = {}  # the last stable offset and its time, by partition

    def look(self, rows: Iterable[PartitionRow]) -> None:
        """Check the current rows of `offsets_partitions`."""
        now = datetime.now(UTC)
        for row in rows:
            number, blocked = row.offsets_partition, _blocked(row)
            if number in self._reported and self._reported[number] != blocked:
                _, since = self._reported.pop(number)
                self._say(f"Offsets partition {number} is no longer blocked, after {_minutes(now - since)}")
            if blocked and number not in self._reported and now - blocked[1] >= self._at_most:
                self._reported[number] = blocked
                waiting = (row.high_watermark or 0) - blocked[0]
                self._warn(
                    f"Offsets partition {number} is blocked at offset {blocked[0]:,} by a transaction that has been "
                    f"open for {_minutes(now - blocked[1])}: {waiting:,} records wait behind it; "
                    "'offsetstream partitions --blocked' names its producer and the command that ends it"
                )


def _blocked(row: PartitionRow) -> tuple[int, datetime] | None:
    if row.last_stable_offset is None or row.last_stable_offset_since is None:
        return None
    return row.last_stable_offset, row.last_stable_offset_since


def _minutes(duration: timedelta) -> str:
    return f"{duration.total_seconds() / 60:.1f} minutes"
