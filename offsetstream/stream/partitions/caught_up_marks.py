"""How long ago a record that was not read yet may have been written, whatever a single clock says of that.

A look at a log finds its end. Once everything below that end is applied, what is not was written after the look: that
is what a mark is. Clocks stop and are set (a paused machine, a restored one), so the brokers' is asked too: the
timestamps of records are its.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from offsetstream.stream.state.size import Share

# By how much clocks may differ, and no more: of the job's machine, of an earlier one's, and of the brokers'.
SKEW = timedelta(hours=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Mark:
    """A look at a log: at `at`, by the job's clock, there was nothing at `end` and above.

    `newest` is how far the brokers' clock was by then, if a record had told.
    """

    at: datetime
    newest: datetime | None
    end: int

    def age(self, now: datetime, newest: datetime | None) -> timedelta:
        """Return how long ago it was at most, by whichever clock says more.

        `newest` is how far the brokers' clock is now. If the job's has been set back, nobody knows: for ever, then.
        """
        if self.at - now > SKEW:
            return timedelta.max
        if newest is None:
            return now - self.at
        return max(now - self.at, newest - max(self.at, self.newest or self.at))


class Clocks:
    """How far the brokers' clock is, as the records that were read last tell.

    `newest` is the time of the newest of them. One that cannot be of that time makes it wrong until others are read.
    """

    def __init__(self) -> None:
        self.newest: datetime | None = None
        self._newest_of: dict[int, datetime] = {}

    def read(self, shares: Mapping[int, Share]) -> None:
        """Take in what was just read of each partition."""
        times = {number: share.newest_ms for number, share in shares.items() if share.newest_ms is not None}
        self._newest_of = {number: _EPOCH + timedelta(milliseconds=time) for number, time in times.items()}
        self.newest = max(self._newest_of.values(), default=self.newest)

    def has_read(self, partition: int) -> bool:
        """Tell whether there were records of the partition."""
        return partition in self._newest_of

    def since(self, partition: int, instant: datetime) -> datetime:
        """Return an instant of the job's clock by whichever is ahead: this, or the brokers' that wrote the partition.

        Other partitions' records are believed only as far as clocks may differ.
        """
        of_others = min(self.newest or instant, instant + SKEW)
        return max(instant, of_others, self._newest_of.get(partition, instant))


class Marks:
    """The marks of each partition: the last one that was reached, and those that lie ahead."""

    def __init__(self) -> None:
        self._reached: dict[int, Mark] = {}
        self._ahead: dict[int, list[Mark]] = {}

    def add(self, partition: int, mark: Mark) -> None:
        """Take in a look; of those that lie ahead the first and the last are enough to go from one to the next."""
        self._ahead[partition] = [*self._ahead.get(partition, [])[:1], mark]

    def reached(self, partition: int) -> Mark | None:
        """Return the last mark that was reached, None if there is none."""
        return self._reached.get(partition)

    def reach(self, partition: int, next_offset: int) -> Mark | None:
        """Note that everything below the offset is applied; returns the last mark reached, None if there is none."""
        ahead = self._ahead.get(partition, [])
        for mark in ahead:
            if mark.end <= next_offset:
                self._reached[partition] = mark
        self._ahead[partition] = [mark for mark in ahead if mark.end > next_offset]
        return self.reached(partition)

    def forget(self, partition: int) -> None:
        """Forget what was seen of a log that is another one now."""
        self._reached.pop(partition, None)
        self._ahead.pop(partition, None)
