"""When the query is replaced by one over the partitions that have a leader."""

from types import SimpleNamespace

import pytest

from offsetstream.errors import RefusedLoginError, UnreachableError
from offsetstream.stream.lifecycle.leaders import (
    ASK_SECONDS,
    ELECTION_SECONDS,
    LONGEST_WITHOUT_LEADER_SECONDS,
    WITHOUT_LEADER_SECONDS,
    LeadersChangedError,
    Leadership,
)

PARTITIONS = [0, 1, 2]


class Cluster:
    """A cluster whose leaders the test sets, and a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.led_by: dict[int, int | None] = {0: 1, 1: 2, 2: 3}
        self.is_silent = False
        self.refuses = False
        self.asked = 0
        cluster = SimpleNamespace(leaders=self._leaders, bootstrap_server="here")
        self.leaders = Leadership(cluster, self._wait, lambda: self.now)  # type: ignore[arg-type]
        self.later: dict[int, int | None] = {}  # the leaders once the job has waited

    def _wait(self, seconds: float) -> bool:
        self.now += seconds
        self.led_by |= self.later
        return False

    def _leaders(self) -> dict[int, int | None]:
        self.asked += 1
        if self.is_silent:
            raise UnreachableError("nobody answers")
        if self.refuses:
            raise RefusedLoginError("not you")
        return dict(self.led_by)

    def begin(self) -> list[int]:
        """Start another attempt. Return the partitions that its query reads."""
        readable = self.leaders.readable(PARTITIONS)
        self.leaders.read(readable)
        return readable

    def seconds_until_change(self, at_most: float = 2000.0) -> float:
        """Check once a second until the query must be replaced."""
        started = self.now
        while self.now - started < at_most:
            try:
                self.leaders.check()
            except LeadersChangedError:
                return self.now - started
            self.now += 1
        raise AssertionError("nothing changed")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_partition_without_leader_is_excluded_and_later_included_again(cluster: Cluster) -> None:
    assert cluster.begin() == PARTITIONS
    cluster.led_by[1] = None
    cluster.now += ASK_SECONDS
    assert cluster.seconds_until_change() <= ELECTION_SECONDS + ASK_SECONDS
    with pytest.raises(LeadersChangedError, match="no broker leads offsets partition 1"):
        cluster.leaders.check_lost()
    assert cluster.begin() == [0, 2]
    assert cluster.leaders.leaderless == [1]

    cluster.led_by[1] = 2
    assert cluster.seconds_until_change() >= WITHOUT_LEADER_SECONDS
    with pytest.raises(LeadersChangedError, match="offsets partition 1 can be read again"):
        cluster.leaders.check()
    assert cluster.begin() == PARTITIONS
    assert cluster.leaders.leaderless == []


def test_a_short_election_changes_nothing(cluster: Cluster) -> None:
    cluster.begin()
    for leader in (None, 2, None, 3):
        cluster.led_by[1] = leader
        cluster.now += ASK_SECONDS
        cluster.leaders.check()


def test_a_flapping_partition_costs_at_most_one_new_query_a_minute(cluster: Cluster) -> None:
    """Its leader is gone for ten seconds, then back for ten, again and again."""
    cluster.begin()
    started, changes = cluster.now, 0
    while cluster.now - started < 3600:
        cluster.led_by[1] = 2 if (cluster.now - started) % 20 < 10 else None
        try:
            cluster.leaders.check()
        except LeadersChangedError:
            changes += 1
            cluster.begin()
        cluster.now += 1
    assert 4 <= changes <= 3600 / LONGEST_WITHOUT_LEADER_SECONDS * 2 + 8


def test_a_partition_that_loses_its_leader_much_later_is_back_in_a_minute(cluster: Cluster) -> None:
    cluster.begin()
    for _ in range(3):
        cluster.led_by[1] = None
        cluster.seconds_until_change()
        cluster.begin()
        cluster.led_by[1] = 2
        assert cluster.seconds_until_change() <= WITHOUT_LEADER_SECONDS + ELECTION_SECONDS + ASK_SECONDS
        cluster.begin()
        cluster.now += LONGEST_WITHOUT_LEADER_SECONDS


def test_a_partition_that_stays_leaderless_does_not_wait_longer_because_of_others(cluster: Cluster) -> None:
    cluster.led_by[1] = None
    for _ in range(5):
        assert cluster.begin() == [0, 2]
    cluster.led_by[1] = 2
    assert cluster.seconds_until_change() <= WITHOUT_LEADER_SECONDS + ELECTION_SECONDS


def test_the_job_waits_for_elections_of_a_cluster_that_just_starts(cluster: Cluster) -> None:
    cluster.led_by, cluster.later = {0: 1, 1: None, 2: None}, {1: 2, 2: 3}
    assert cluster.begin() == PARTITIONS


def test_a_cluster_without_any_leader_counts_as_unreachable(cluster: Cluster) -> None:
    cluster.begin()
    cluster.led_by = dict.fromkeys(PARTITIONS)
    for _ in range(20):
        cluster.now += 1
        cluster.leaders.check()  # the query has to say it
    with pytest.raises(UnreachableError, match="no leader of any offsets partition"):
        cluster.leaders.readable(PARTITIONS)


def test_if_all_partitions_with_a_leader_must_wait_they_are_read_now(cluster: Cluster) -> None:
    cluster.led_by[1] = None
    cluster.begin()
    cluster.led_by = {0: None, 1: 2, 2: None}
    assert cluster.begin() == [1]


def test_a_cluster_that_does_not_answer_changes_nothing(cluster: Cluster) -> None:
    cluster.begin()
    cluster.led_by[1], cluster.is_silent = None, True
    for _ in range(20):
        cluster.now += 1
        cluster.leaders.check()
    assert cluster.asked <= 2 + 20 / ASK_SECONDS


def test_new_and_removed_partitions_are_no_change_of_leaders(cluster: Cluster) -> None:
    cluster.begin()
    cluster.led_by = {0: 1, 3: 1}
    for _ in range(20):
        cluster.now += 1
        cluster.leaders.check_lost()


def test_a_refused_login_ends_the_query_and_silence_does_not() -> None:
    cluster = Cluster()
    cluster.begin()
    cluster.is_silent, cluster.now = True, cluster.now + ASK_SECONDS
    cluster.leaders.check()
    cluster.is_silent, cluster.refuses, cluster.now = False, True, cluster.now + ASK_SECONDS
    with pytest.raises(RefusedLoginError):
        cluster.leaders.check()
