"""Which offsets partitions have a leader. The query reads only these.

Spark's query requests the end offsets of all its partitions at once, and hangs if one has no leader. So the query
covers the partitions with a leader, and is replaced when these change:

- A partition lost its leader for longer than an election takes: at once.
- A partition has a leader again: after one minute without it. The time doubles each time that the partition loses its
  leader again within ten minutes, because each change needs a new checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from offsetstream.cluster.client import Cluster
from offsetstream.errors import ClusterError, RefusedLoginError, UnreachableError

ASK_SECONDS = 2.0
ELECTION_SECONDS = 3.0
ELECTION_CHECKS = 10  # a second apart, while elections run
WITHOUT_LEADER_SECONDS, LONGEST_WITHOUT_LEADER_SECONDS = 60.0, 600.0


class LeadersChangedError(Exception):
    """The query must cover other partitions: some lost their leader or have one again. The job starts another query."""


@dataclass
class _Partition:
    """A partition: whether it has a leader and since when, when the query may read it, and how long it stays excluded.

    Times are seconds of the clock.
    """

    is_led: bool
    since: float
    may_be_read_at: float
    leaderless_for: float = 0.0


class Leadership:
    """Knows which partitions have a leader, over all attempts of the job.

    `wait` waits for some seconds and returns whether the job is to stop. `clock` returns seconds.
    """

    def __init__(
        self, cluster: Cluster, wait: Callable[[float], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._wait = wait
        self._clock = clock
        self._known: dict[int, _Partition] = {}
        self._read: frozenset[int] = frozenset()
        self._asked_at = -ASK_SECONDS

    def readable(self, partitions: Collection[int]) -> list[int]:
        """Return the partitions that have a leader; if they lost it before, only after the time of exclusion.

        Wait up to ten seconds for running elections, as in a cluster that has just started. Raise UnreachableError if
        no partition has a leader.
        """
        self._look()
        for _ in range(ELECTION_CHECKS):
            if not self._is_electing(partitions) or self._wait(1.0):
                break
            self._look()
        led = [number for number in partitions if number in self._known and self._known[number].is_led]
        if not led:
            raise UnreachableError(f"{self._cluster.bootstrap_server} has no leader of any offsets partition")
        now = self._clock()
        return sorted(number for number in led if self._known[number].may_be_read_at <= now) or sorted(led)

    def read(self, partitions: Iterable[int]) -> None:
        """Record that the query reads these partitions, and excludes the others for a while."""
        before, self._read = self._read, frozenset(partitions)
        for number in self.leaderless:
            if number in before or self._known[number].leaderless_for == 0:
                _exclude(self._known[number], self._clock())

    @property
    def reading(self) -> frozenset[int]:
        """Partitions that the query reads."""
        return self._read

    @property
    def leaderless(self) -> list[int]:
        """Partitions that the query does not read."""
        return sorted(self._known.keys() - self._read)

    def check_lost(self) -> None:
        """Raise LeadersChangedError if a partition of the query has no leader, and another partition has one."""
        self._look_again()
        now = self._clock()
        lost = [number for number in self._read & self._known.keys() if not self._known[number].is_led]
        is_lost = any(now - self._known[number].since >= ELECTION_SECONDS for number in lost)
        if is_lost and any(each.is_led for each in self._known.values()):
            raise LeadersChangedError(f"no broker leads {partitions_text(lost)}")

    def check(self) -> None:
        """Raise LeadersChangedError if `check_lost` does, or if an excluded partition has a leader again."""
        self.check_lost()
        now = self._clock()
        led = [number for number in self.leaderless if self._known[number].is_led]
        back = [number for number in led if self._known[number].may_be_read_at <= now]
        if any(now - self._known[number].since >= ELECTION_SECONDS for number in back):
            raise LeadersChangedError(f"{partitions_text(back)} can be read again")

    def _is_electing(self, partitions: Collection[int]) -> bool:
        known, now = [self._known[number] for number in partitions if number in self._known], self._clock()
        return any(not each.is_led and now - each.since < ELECTION_SECONDS for each in known)

    def _look_again(self) -> None:
        if self._clock() - self._asked_at >= ASK_SECONDS:
            try:
                self._look()
            except RefusedLoginError:
                raise
            except ClusterError:
                return  # the observer reports it

    def _look(self) -> None:
        self._asked_at = self._clock()
        leaders, now = self._cluster.leaders(), self._clock()
        for number, leader in leaders.items():
            partition = self._known.setdefault(number, _Partition(leader is not None, now, now))
            if partition.is_led != (leader is not None):
                partition.is_led, partition.since = leader is not None, now
        for number in self._known.keys() - leaders.keys():
            del self._known[number]


def _exclude(partition: _Partition, now: float) -> None:
    is_soon = partition.leaderless_for > 0 and now - partition.may_be_read_at < LONGEST_WITHOUT_LEADER_SECONDS
    partition.leaderless_for = (
        min(2 * partition.leaderless_for, LONGEST_WITHOUT_LEADER_SECONDS) if is_soon else WITHOUT_LEADER_SECONDS
    )
    partition.may_be_read_at = now + partition.leaderless_for


def partitions_text(partitions: Collection[int]) -> str:
    """Return the partitions as text for a message: `offsets partitions 1, 2`."""
    numbers = sorted(partitions)
    return f"offsets partition{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers))}"
