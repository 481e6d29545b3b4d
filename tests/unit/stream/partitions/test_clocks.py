"""How old unread records can be, which partitions are loaded, and since when a history is complete."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.partitions.clocks import Clocks, Mark, Marks, partitions_to_load
from offsetstream.stream.partitions.rows import PartitionRow
from offsetstream.stream.records import Share
from offsetstream.tables.names import OWNED, LoadState
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.transaction import BatchId
from tests.unit.stream.partitions.book import BATCH, loaded, newest

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("newest_before", "now", "newest_now", "age"),
    [
        (None, NOON + 2 * HOUR, None, 2 * HOUR),
        (NOON, NOON + 2 * HOUR, NOON + HOUR, 2 * HOUR),
        (NOON, NOON, NOON + 3 * HOUR, 3 * HOUR),  # the job's clock stood still
        (None, NOON, NOON + 3 * HOUR, 3 * HOUR),  # an earlier job's look
        (NOON - 9 * HOUR, NOON, NOON, timedelta(0)),  # the topic was idle
        (NOON + 9 * HOUR, NOON, NOON + 9 * HOUR, timedelta(0)),  # the brokers' clock is ahead
        (NOON - 9 * HOUR, NOON + HOUR, NOON - 8 * HOUR, HOUR),  # it is behind
        (NOON + 999 * HOUR, NOON + 2 * HOUR, NOON, 2 * HOUR),  # one record could not be of its time
        (None, NOON - HOUR / 2, None, -HOUR / 2),  # another host's clock
        (None, NOON - 2 * HOUR, None, timedelta.max),  # the job's clock was set back
    ],
)
def test_the_age_of_a_mark_is_that_of_the_clock_that_shows_more(
    newest_before: datetime | None, now: datetime, newest_now: datetime | None, age: timedelta
) -> None:
    assert Mark(NOON, newest_before, 7).age(now, newest_now) == age


def mark(hours: int, end: int) -> Mark:
    return Mark(NOON + hours * HOUR, None, end)


def test_a_mark_is_reached_when_all_below_its_end_is_applied() -> None:
    marks = Marks()
    assert marks.reach(0, 100) is None
    marks.add(0, mark(0, 10))
    assert marks.reach(0, 9) is None
    assert marks.reach(0, 10) == marks.reached(0) == mark(0, 10)
    assert marks.reached(1) is None
    marks.forget(0)
    assert marks.reached(0) is None


def test_a_partition_that_is_never_at_its_end_reaches_one_mark_after_the_other() -> None:
    """A busy log has grown at each check. It counts that everything from an earlier check is applied."""
    marks = Marks()
    for at in range(5):
        marks.add(0, mark(at, 10 * (at + 1)))  # behind by so many
        reached = marks.reach(0, 10 * at)
        assert reached == (mark(at - 1, 10 * at) if at else None)


def test_a_backlog_reaches_a_mark_before_its_end() -> None:
    marks = Marks()
    for at in range(5):
        marks.add(0, mark(at, 100 + at))
    assert marks.reach(0, 99) is None
    assert marks.reach(0, 100) == mark(0, 100)
    assert marks.reach(0, 103) == mark(0, 100)
    assert marks.reach(0, 104) == mark(4, 104)


def test_a_time_is_that_of_the_clock_that_is_ahead() -> None:
    def ms(instant: datetime) -> int:
        return round(instant.timestamp() * 1000)

    clocks = Clocks()
    assert clocks.since(0, NOON) == NOON
    clocks.read({0: Share(1, ms(NOON - HOUR)), 1: Share(1, ms(NOON + 5 * HOUR)), 2: Share(1, None)})
    assert clocks.newest == NOON + 5 * HOUR
    assert [clocks.has_read(number) for number in range(4)] == [True, True, False, False]
    assert clocks.since(1, NOON) == NOON + 5 * HOUR
    assert clocks.since(0, NOON) == NOON + HOUR  # no clock is ahead of others by more
    assert clocks.since(1, NOON + 9 * HOUR) == NOON + 9 * HOUR
    clocks.read({0: Share(1, None)})
    assert clocks.newest == NOON + 5 * HOUR


RETENTION = timedelta(hours=24)
SAFE = 0.9 * RETENTION


def log(stable: int = 100, high: int | None = None, start: int = 0) -> PartitionEnds:
    return PartitionEnds(start, stable, stable if high is None else high, 1, 1, datetime.now(UTC))


UNFINISHED: list[LoadState | None] = [None, "LOADING", "FAILED", "UNLOADED"]


def row(next_offset: int | None = 100, state: LoadState | None = OWNED, hours_ago: float | None = 0.0) -> PartitionRow:
    caught_up_at = None if hours_ago is None else datetime.now(UTC) - timedelta(hours=hours_ago)
    return PartitionRow(7, load_state=state, next_offset=next_offset, caught_up_at=caught_up_at)


def must_load(row: PartitionRow, ends: PartitionEnds) -> bool:
    return partitions_to_load({7: row}, {7: ends}, SAFE) == [7]


@pytest.mark.parametrize(
    ("known", "ends", "is_loaded"),
    [
        *(({"state": state, "next_offset": at}, {}, True) for state in UNFINISHED for at in (100, None)),
        ({}, {}, False),
        ({"hours_ago": 1000}, {}, False),  # an idle partition, after any pause of the job
        *(({"next_offset": 99, "hours_ago": hours}, {}, hours > 21.6) for hours in (0.0, 21.5, 21.7, 1000)),
        ({"next_offset": 99, "hours_ago": None}, {}, True),  # it was never caught up
        ({"hours_ago": None}, {}, False),
        ({"next_offset": 99, "hours_ago": -2}, {}, True),  # the clock was set back since: the age is unknown
        ({"next_offset": 99, "hours_ago": -0.5}, {}, False),  # clocks of two hosts
        ({"hours_ago": -2}, {}, False),
        ({"next_offset": 50}, {"start": 51}, True),  # it lost records
        ({"next_offset": 50}, {"start": 50}, False),
        ({"next_offset": 101}, {}, True),  # another log
        ({"next_offset": 1}, {"stable": 0}, True),
        ({}, {"stable": 40, "high": 100}, False),  # an open transaction
    ],
)
def test_a_partition_is_loaded_if_its_rows_may_lack_a_change(
    known: dict[str, Any], ends: dict[str, int], is_loaded: bool
) -> None:
    assert must_load(row(**known), log(**ends)) is is_loaded


def test_retention_is_the_topics_own() -> None:
    behind, week = row(99, hours_ago=30), timedelta(days=7)
    assert partitions_to_load({0: behind}, {0: log()}, week) == []
    assert partitions_to_load({0: behind}, {0: log()}, SAFE) == [0]


def test_a_time_without_a_zone_is_utc() -> None:
    caught_up_at = (datetime.now(UTC) - timedelta(hours=20)).replace(tzinfo=None)
    stored = {"offsets_partition": 7, "load_state": OWNED, "next_offset": 99, "caught_up_at": caught_up_at}
    assert not must_load(PartitionRow.of(stored), log())


@pytest.mark.parametrize(("next_offset", "is_other"), [(None, False), (99, False), (100, False), (101, True)])
def test_a_log_that_ends_before_the_applied_offset_is_another_one(next_offset: int | None, is_other: bool) -> None:
    assert row(next_offset).is_other_log(log(stable=40, high=100)) is is_other


def test_only_partitions_with_end_offsets_are_loaded_in_order() -> None:
    rows = {2: row(), 0: row(None, None), 3: row(None, None), 1: row(None, None)}
    assert partitions_to_load(rows, {0: log(), 1: log(), 2: log()}, SAFE) == [0, 1]
    assert partitions_to_load({}, {}, SAFE) == []


NEVER = datetime.min.replace(tzinfo=UTC)


def test_after_a_job_without_history_no_history_is_complete(tables: PathStore, book: PartitionBook) -> None:
    for number in (0, 1):
        loaded(book, number, 100)
    book.write(BATCH)
    assert book.claims.missing == []
    without = PartitionBook(tables, range(3), keeps_history=False)
    assert [row.history_complete_from for row in without.rows.values()] == [None, None, None]
    assert without.claims.missing == []
    loaded(without, 0, 200)
    without.write(BatchId(1, 1))

    again = PartitionBook(tables, range(3))
    assert again.claims.missing == [0, 1]
    loaded(again, 1, 100)  # nothing has come since
    assert again.rows[1].history_complete_from == again.rows[1].load_started_at
    assert again.claims.missing == [0]


def test_history_is_complete_from_the_first_load_on(book: PartitionBook) -> None:
    loaded(book, 1, 100)
    first = book.rows[1].load_started_at
    assert book.rows[1].history_complete_from == first
    loaded(book, 1, 100)  # nothing came in between
    assert book.rows[1].history_complete_from == first


def test_a_load_beyond_the_stream_starts_the_complete_history_again(book: PartitionBook) -> None:
    loaded(book, 1, 100)
    loaded(book, 1, 101)  # compaction may have removed records between the loads
    assert book.rows[1].history_complete_from == book.rows[1].load_started_at


def test_records_lost_unread_start_the_complete_history_again(book: PartitionBook) -> None:
    for number in range(3):
        loaded(book, number, 100)
    complete = {number: row.history_complete_from for number, row in book.rows.items()}
    before = datetime.now(UTC)
    book.advance({0: 150, 1: 150}, [1])
    assert (book.rows[1].history_complete_from or NEVER) >= before
    assert [book.rows[number].history_complete_from for number in (0, 2)] == [complete[0], complete[2]]


def test_history_complete_from_uses_the_clock_that_is_ahead(book: PartitionBook) -> None:
    ahead = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=5)
    book.clocks.read(newest(ahead))
    loaded(book, 1, 100)
    assert book.rows[1].history_complete_from == ahead
    book.clocks.read(newest(ahead + timedelta(hours=1)))
    book.advance({1: 150}, [1])
    assert book.rows[1].history_complete_from == ahead + timedelta(hours=1)


def test_a_time_that_no_clock_has_reached_is_corrected(book: PartitionBook) -> None:
    now = datetime.now(UTC)
    book.clocks.read(newest(now + timedelta(days=9)))  # which cannot be
    loaded(book, 1, 100)
    book.clocks.read(newest(now - timedelta(seconds=1)))
    book.advance({1: 150})
    assert now <= (book.rows[1].history_complete_from or NEVER) <= datetime.now(UTC)
