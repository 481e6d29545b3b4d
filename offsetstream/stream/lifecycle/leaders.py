"""The offsets partitions that no broker leads: the others are read without them, until they have a leader again.

Spark's query asks for the ends of all its partitions at once, and waits in vain for the one that nobody leads; so do
its tasks for the records. So the query is made over those that have a leader, and made anew when that changes: at once
when one has lost its leader for longer than an election takes; when it has one again, not before it was left out for a
minute, and for twice as long each time that it is lost again within ten minutes, since each change is a new checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from offsetstream.cluster.client import Cluster
from offsetstream.errors import ClusterError, UnreachableError

ASK_SECONDS = 2.0
ELECTION_SECONDS = 3.0
LOOKS = 10  # a second apart, while elections go on
WITHOUT_LEADER_SECONDS, LONGEST_WITHOUT_LEADER_SECONDS = 60.0, 600.0


class LeadersChangedError(Exception):
    """Raised when other partitions can be read than the query has: the job begins anew with these."""


@dataclass
class _Seen:
    """What is known of a partition: whether it is led, and since when; from when on, and after how long, it is read."""

    is_led: bool
    since: float
    may_be_read_at: float
    leaderless_for: float = 0.0


class Leadership:
    """Which partitions can be read.

    `wait` waits for so many seconds, and tells whether the job is to stop. `clock`, in seconds, goes on while the
    job begins anew.
    """

    def __init__(
        self, cluster: Cluster, wait: Callable[[float], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._wait = wait
        self._clock = clock
        self._seen: dict[int, _Seen] = {}
        self._read: frozenset[int] = frozenset()
        self._asked_at = -ASK_SECONDS

    def readable(self, partitions: Collection[int]) -> list[int]:
        """Return those of the partitions that have a leader, and had it for long enough if it was lost before.

        Waits for elections that go on, as of a cluster that has just started, but not for long. UnreachableError if
        none has one, as if the cluster did not answer.
        """
        self._look()
        for _ in range(LOOKS):
            if not self._elects(partitions) or self._wait(1.0):
                break
            self._look()
        led = [number for number in partitions if number in self._seen and self._seen[number].is_led]
        if not led:
            raise UnreachableError(f"{self._cluster.bootstrap_server} has no leader of any offsets partition")
        now = self._clock()
        return sorted(number for number in led if self._seen[number].may_be_read_at <= now) or sorted(led)

    def read(self, partitions: Iterable[int]) -> None:
        """Note that the query reads these partitions, and leaves the others out for a while."""
        before, self._read = self._read, frozenset(partitions)
        for number in self.leaderless:
            seen = self._seen[number]
            if number in before or seen.leaderless_for == 0:
                _leave_out(seen, self._clock())

    @property
    def reading(self) -> frozenset[int]:
        """The partitions that the query reads."""
        return self._read

    @property
    def leaderless(self) -> list[int]:
        """The partitions that the query does not read."""
        return sorted(self._seen.keys() - self._read)

    def check_lost(self) -> None:
        """Raise LeadersChangedError if a partition that the query reads has no leader, while others have one."""
        self._look_again()
        now = self._clock()
        lost = [number for number in self._read & self._seen.keys() if not self._seen[number].is_led]
        is_lost = any(now - self._seen[number].since >= ELECTION_SECONDS for number in lost)
        if is_lost and any(seen.is_led for seen in self._seen.values()):
            raise LeadersChangedError(f"no broker leads {in_words(lost)}")

    def check(self) -> None:
        """Raise LeadersChangedError also if a partition that was left out has a leader again."""
        self.check_lost()
        now = self._clock()
        led = [number for number in self.leaderless if self._seen[number].is_led]
        back = [number for number in led if self._seen[number].may_be_read_at <= now]
        if any(now - self._seen[number].since >= ELECTION_SECONDS for number in back):
            raise LeadersChangedError(f"{in_words(back)} can be read again")

    def _elects(self, partitions: Collection[int]) -> bool:
        seen, now = [self._seen[number] for number in partitions if number in self._seen], self._clock()
        return any(not each.is_led and now - each.since < ELECTION_SECONDS for each in seen)

    def _look_again(self) -> None:
        if self._clock() - self._asked_at >= ASK_SECONDS:
            try:
                self._look()
            except ClusterError:
                return  # which is told where it matters

    def _look(self) -> None:
        self._asked_at = self._clock()
        leaders, now = self._cluster.leaders(), self._clock()
        for number, leader in leaders.items():
            seen = self._seen.setdefault(number, _Seen(leader is not None, now, now))
            if seen.is_led != (leader is not None):
                seen.is_led, seen.since = leader is not None, now
        for number in self._seen.keys() - leaders.keys():
            del self._seen[number]


def _leave_out(seen: _Seen, now: float) -> None:
    is_soon = seen.leaderless_for > 0 and now - seen.may_be_read_at < LONGEST_WITHOUT_LEADER_SECONDS
    longer = min(2 * seen.leaderless_for, LONGEST_WITHOUT_LEADER_SECONDS)
    seen.leaderless_for = longer if is_soon else WITHOUT_LEADER_SECONDS
    seen.may_be_read_at = now + seen.leaderless_for


def in_words(partitions: Collection[int]) -> str:
    """Return the partitions as a message names them."""
    numbers = sorted(partitions)
    return f"offsets partition{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers))}"
