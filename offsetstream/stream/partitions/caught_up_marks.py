"""How old an unread record can be at most, even if one clock is wrong.

A mark is an end offset of a log and the time at which the job saw it. Once everything below that offset is applied,
each unread record was written after that time. Clocks stop or are set (a paused or restored machine), so the brokers'
clock counts too: it is the source of the records' timestamps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from offsetstream.stream.state.size import Share

# The greatest expected difference between clocks: of the job's machine, of an earlier one, and of the brokers.
SKEW = timedelta(hours=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Mark:
    """A log ended at offset `end` (exclusive) at the time `at` of the job's clock.

    `newest`: the brokers' clock at that time, None if no record had shown it.
    """

    at: datetime
    newest: datetime | None
    end: int

    def age(self, now: datetime, newest: datetime | None) -> timedelta:
        """Return the greater age of the two clocks. `newest`: the brokers' clock now.

        If the job's clock was set back, the age is unknown, so return the maximum.
        """
        if self.at - now > SKEW:
            return timedelta.max
        if newest is None:
            return now - self.at
        return max(now - self.at, newest - max(self.at, self.newest or self.at))


class Clocks:
    """The brokers' clock, as the records of the last batch or load show it.

    `newest` is their greatest timestamp. A record with a wrong timestamp falsifies it until the next batch or load.
    """

    def __init__(self) -> None:
        self.newest: datetime | None = None
        self._newest_of: dict[int, datetime] = {}

    def read(self, shares: Mapping[int, Share]) -> None:
        """Take the timestamps of the records that were just read."""
        times = {number: share.newest_ms for number, share in shares.items() if share.newest_ms is not None}
        self._newest_of = {number: _EPOCH + timedelta(milliseconds=time) for number, time in times.items()}
        self.newest = max(self._newest_of.values(), default=self.newest)

    def has_read(self, partition: int) -> bool:
        """Return whether the last batch or load had records of the partition."""
        return partition in self._newest_of

    def since(self, partition: int, instant: datetime) -> datetime:
        """Return `instant` of the job's clock, or the partition's newest timestamp if that is later.

        Timestamps of other partitions count only up to the expected difference of clocks.
        """
        others = min(self.newest or instant, instant + SKEW)
        return max(instant, others, self._newest_of.get(partition, instant))


class Marks:
    """The marks of each partition: the last one that the job has reached, and those ahead."""

    def __init__(self) -> None:
        self._reached: dict[int, Mark] = {}
        self._ahead: dict[int, list[Mark]] = {}

    def add(self, partition: int, mark: Mark) -> None:
        """Add a mark. Of the marks ahead, keep the first and the last: that is enough."""
        self._ahead[partition] = [*self._ahead.get(partition, [])[:1], mark]

    def reached(self, partition: int) -> Mark | None:
        """Return the last mark reached, or None."""
        return self._reached.get(partition)

    def reach(self, partition: int, next_offset: int) -> Mark | None:
        """Record that everything below `next_offset` is applied. Return the last mark reached, or None."""
        ahead = self._ahead.get(partition, [])
        for mark in ahead:
            if mark.end <= next_offset:
                self._reached[partition] = mark
        self._ahead[partition] = [mark for mark in ahead if mark.end > next_offset]
        return self.reached(partition)

    def forget(self, partition: int) -> None:
        """Drop the marks of a partition that has a new log."""
        self._reached.pop(partition, None)
        self._ahead.pop(partition, None)
