from datetime import UTC, datetime, timedelta

import pytest

from offsetstream.stream.partitions.caught_up_marks import Clocks, Mark, Marks
from offsetstream.stream.state.size import Share

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
