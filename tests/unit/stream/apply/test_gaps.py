from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.cluster.client import Cluster
from offsetstream.errors import UnreachableError
from offsetstream.stream.apply.gaps import Gaps, Ranges
from offsetstream.stream.monitor.topic_settings import TopicSettings
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.state.size import Share
from offsetstream.tables.path_store import PathStore

PARTITIONS = range(3)
ENDS = dict.fromkeys(PARTITIONS, 150)
SHARES = {0: Share(50, None), 1: Share(49, None)}  # so 1 and 2 have gaps


class Topic(Cluster):
    """A cluster that returns a setting of the topic."""

    def __init__(self, lag_ms: int) -> None:
        super().__init__("127.0.0.1:1")  # nobody is asked
        self.lag_ms = lag_ms

    def topic_settings(self, *_: str) -> dict[str, str | None]:
        return {"min.compaction.lag.ms": str(self.lag_ms)}


class Log:
    """A log that returns its lost offsets, or that does not answer."""

    def __init__(self, told: Mapping[int, int] | None = None) -> None:
        self._told = told
        self.asked: list[Ranges] = []

    def __call__(self, ranges: Ranges) -> Mapping[int, int]:
        self.asked.append(ranges)
        if self._told is None:
            raise UnreachableError("no broker answers")
        return self._told


def settings(lag_ms: int = 0) -> TopicSettings:
    told = TopicSettings(Topic(lag_ms), print)
    told.look()
    return told


def loaded(tables: PathStore, *, minutes_ago: int = 0, high: int = 100, keeps_history: bool = True) -> PartitionBook:
    book = PartitionBook(tables, PARTITIONS, keeps_history=keeps_history)
    at = datetime.now(UTC) - timedelta(minutes=minutes_ago)
    book.observe({number: PartitionEnds(0, 100, high, 1, 1, at) for number in PARTITIONS})
    book.start_load(dict.fromkeys(PARTITIONS, 100))
    for number in PARTITIONS:
        book.finish_load(number, 100, 1, 1)
    return book


def test_fewer_records_than_offsets_are_a_gap(tables: PathStore) -> None:
    log = Log()
    assert Gaps(loaded(tables), settings(), log).incomplete(ENDS, SHARES) == [1, 2]
    assert log.asked == [{1: (100, 150), 2: (100, 150)}]
    assert Gaps(loaded(tables), settings(), log).incomplete(dict.fromkeys(PARTITIONS, 100), {}) == []
    assert len(log.asked) == 1


def test_the_log_distinguishes_markers_from_lost_records(tables: PathStore) -> None:
    assert Gaps(loaded(tables), settings(), Log({1: 0, 2: 3})).incomplete(ENDS, SHARES) == [2]
    assert Gaps(loaded(tables), settings(), Log({1: 0})).incomplete(ENDS, SHARES) == [2]  # it cannot tell of 2


@pytest.mark.parametrize(("minutes_ago", "broken"), [(50, []), (55, [1, 2])])
def test_records_too_young_to_be_compacted_are_no_gap(tables: PathStore, minutes_ago: int, broken: list[int]) -> None:
    told = settings(3_600_000)
    told.uncompacted_since -= timedelta(days=1)
    assert Gaps(loaded(tables, minutes_ago=minutes_ago), told, Log()).incomplete(ENDS, SHARES) == broken


def test_a_setting_does_not_protect_records_from_before_it(tables: PathStore) -> None:
    assert Gaps(loaded(tables, minutes_ago=1), settings(3_600_000), Log()).incomplete(ENDS, SHARES) == [1, 2]


def test_records_that_an_open_transaction_blocked_may_have_any_age(tables: PathStore) -> None:
    told = settings(3_600_000)
    told.uncompacted_since -= timedelta(days=1)
    assert Gaps(loaded(tables, high=120), told, Log()).incomplete(ENDS, SHARES) == [1, 2]


def test_a_partition_without_complete_history_has_no_gaps(tables: PathStore) -> None:
    log = Log()
    assert Gaps(loaded(tables, keeps_history=False), settings(), log).incomplete(ENDS, SHARES) == []
    assert log.asked == []
