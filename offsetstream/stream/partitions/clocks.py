"""How old an unread record can be at most, even if one clock is wrong.

So which partitions must be loaded (rule 5), and since when the history of a partition is complete.

A mark is an end offset of a log and the time at which the job saw it. Once everything below that offset is applied,
each unread record was written after that time. Clocks stop or are set (a paused or restored machine), so the brokers'
clock counts too: it is the source of the records' timestamps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.stream.partitions.rows import PartitionRow, PartitionRows
from offsetstream.stream.records import Share

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


def caught_up(row: PartitionRow) -> Mark | None:
    """Return when the partition was caught up last, as its row has it; None if it never was."""
    return None if row.caught_up_at is None else Mark(row.caught_up_at, None, row.applied)


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
    mark = caught_up(row)
    return mark is None or mark.age(datetime.now(UTC), None) > safe_retention


class HistoryClaims:
    """The column `history_complete_from` of the rows. Its times are of the clock that is ahead (`clocks`).

    `keeps_history`: whether the job writes the history. If not, no history is complete any more.
    """

    def __init__(self, rows: PartitionRows, clocks: Clocks, *, keeps_history: bool) -> None:
        self._rows = rows
        self._clocks = clocks
        self.keeps_history = keeps_history
        if not keeps_history:
            self.withdraw()

    @property
    def missing(self) -> list[int]:
        """The loaded partitions of which an earlier job wrote no history, but this job writes it."""
        rows = self._rows.values() if self.keeps_history else ()
        return [row.offsets_partition for row in rows if row.is_owned and row.history_complete_from is None]

    def withdraw(self) -> None:
        """Mark the history of all partitions as not complete."""
        for number in self._rows:
            self._rows.set(number, history_complete_from=None)

    def thinned_before(self, instant: datetime | None) -> None:
        """Record that retention may have thinned the history before the instant."""
        for number, row in self._rows.items():
            since = row.history_complete_from
            if instant is not None and since is not None and since < instant:
                self._rows.learn(number, history_complete_from=instant)

    def complete_since(self, partition: int, instant: datetime) -> None:
        """Record that the log had all records from the instant on."""
        self._rows.set(partition, history_complete_from=instant)

    def advance(self, partition: int, *, is_incomplete: bool) -> None:
        """Take a batch. `is_incomplete`: some of its records were gone before the job read them."""
        if is_incomplete or self._is_in_the_future(self._rows[partition]):
            self._rows.set(partition, history_complete_from=self._clocks.since(partition, datetime.now(UTC)))

    def _is_in_the_future(self, row: PartitionRow) -> bool:
        """Return whether the time lies ahead of all clocks: then it came from a record with a wrong timestamp."""
        number, since = row.offsets_partition, row.history_complete_from
        reached = self._clocks.since(number, datetime.now(UTC))
        return self._clocks.has_read(number) and since is not None and since - reached > SKEW

    def loaded(self, partition: int, load_started_at: datetime, *, is_behind: bool) -> None:
        """Take a load. `is_behind`: the load ended beyond what the stream had read."""
        if self.keeps_history and (is_behind or self._rows[partition].history_complete_from is None):
            # Compaction may have removed records that the stream had not read before the load.
            self._rows.set(partition, history_complete_from=self._clocks.since(partition, load_started_at))
