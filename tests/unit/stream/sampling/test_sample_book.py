"""Which samples become rows of end_offsets, compared with a plain list of all samples."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offsetstream.cluster.log_ends import Answers, LogEnd, NoEnd, RecordTimes, TopicPartitionKey
from offsetstream.stream.sampling.sample_book import AT_LEAST_EVERY, Holder, SampleBook, Tail

START = datetime(2026, 3, 4, 5, tzinfo=UTC)
PLACES = [TopicPartitionKey("orders", 0), TopicPartitionKey("orders", 1)]
OFFSETS = st.integers(0, 2)
ENDS = st.builds(LogEnd, st.sampled_from([None, "a", "b"]), OFFSETS, OFFSETS, OFFSETS, OFFSETS, OFFSETS)
ANSWERS = st.one_of(ENDS, ENDS, ENDS, st.builds(NoEnd, st.none(), st.just("LEADER_NOT_AVAILABLE")))
ROUNDS = st.lists(st.tuples(st.integers(1, 400), st.tuples(ANSWERS, ANSWERS)), max_size=30)


def end(high: int, start: int | None = 0, topic_id: str | None = "a", epoch: int | None = 3) -> LogEnd:
    return LogEnd(topic_id, 1, epoch, start, high, high)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def take(book: SampleBook, seconds: float, answer: LogEnd | NoEnd) -> None:
    book.take({PLACES[0]: answer}, at(seconds))


def recorded(book: SampleBook) -> list[tuple[int, datetime, datetime | None]]:
    return [(row["high_watermark"], row["sampled_at"], row["previous_sampled_at"]) for row in book.waiting]


def test_a_moved_end_has_a_row_with_the_time_until_which_the_last_end_was_valid() -> None:
    book = SampleBook()
    for seconds, high in ((0, 5), (10, 5), (20, 5), (30, 7), (40, 8)):
        take(book, seconds, end(high))
    assert recorded(book) == [(5, at(0), None), (7, at(30), at(20)), (8, at(40), at(30))]
    assert [(row["sampled_at"], row["changed_at"]) for row in book.rows()] == [(at(40), at(40))]


def test_an_idle_partition_has_a_row_every_ten_minutes() -> None:
    book = SampleBook()
    for seconds in range(0, 1300, 10):
        take(book, seconds, end(5))
    assert recorded(book) == [(5, at(0), None), (5, at(600), at(590)), (5, at(1200), at(1190))]
    assert book.rows()[0]["changed_at"] == at(0)


def ms(seconds: float) -> int:
    return round(at(seconds).timestamp() * 1000)


def with_changed_rate(book: SampleBook, seconds: float, high: int) -> bool:
    answers: Answers = {PLACES[0]: end(high), TopicPartitionKey("__consumer_offsets", 0): end(high)}
    found = dict(book.with_changed_rate(answers, at(seconds)))
    assert set(found) <= {PLACES[0]}
    return bool(found)


def test_record_times_are_queried_only_where_a_burst_starts_or_ends() -> None:
    book, asked = SampleBook(), []
    take(book, 0, end(0))
    for seconds, high in ((10, 0), (20, 100), (30, 210), (40, 315), (50, 340), (60, 340), (70, 341)):
        asked += [seconds] if with_changed_rate(book, seconds, high) else []
        take(book, seconds, end(high))
    assert asked == [20, 50, 70]


@pytest.mark.parametrize(
    ("times", "held_until", "since"),
    [
        (RecordTimes(5, ms(13), ms(17)), 13, 17),
        (RecordTimes(5, ms(13), ms(13)), 13, 13),
        (RecordTimes(5, ms(13), ms(25)), 13, 20),  # one more came since
        (RecordTimes(5, ms(20.5), ms(20.9)), 20, 20),  # all came between the clock and the question
        (RecordTimes(5, ms(22), ms(25)), 10, 20),  # a producer whose clock is ahead
        (RecordTimes(6, ms(13), ms(17)), 10, 17),  # that of the first is older than the look
        (RecordTimes(2, ms(13), ms(17)), 10, 17),  # a record that was there already is of later
        (RecordTimes(-1, -1, ms(4)), 10, 20),  # a producer whose clock is late
        (RecordTimes(5, ms(18), ms(15)), 18, 20),
        (RecordTimes(5, ms(13) * 1000, ms(17) * 1000), 10, 20),  # a producer that counts microseconds
        (RecordTimes(5, ms(13), 2**63 - 1), 13, 20),
        (RecordTimes(-1, -1, -(2**63)), 10, 20),
        (None, 10, 20),
    ],
)
def test_a_rise_lies_between_its_records(times: RecordTimes | None, held_until: float, since: float) -> None:
    book = SampleBook()
    take(book, 0, end(5))
    take(book, 10, end(5))
    book.take({PLACES[0]: end(9)}, at(20), {PLACES[0]: times} if times else {})
    assert recorded(book)[1:] == [(9, at(since), at(held_until))]
    assert [(row["sampled_at"], row["changed_at"]) for row in book.rows()] == [(at(20), at(since))]
    take(book, 30, end(12))
    assert recorded(book)[2:] == [(12, at(30), at(20))]
    again = SampleBook()  # the next job finds what this one wrote
    again.recall(book.rows(), {PLACES[0]: book.waiting[-1]})
    assert again.waiting == []


def test_an_error_keeps_the_last_sample() -> None:
    book = SampleBook()
    take(book, 0, end(5))
    take(book, 10, NoEnd("a", "LEADER_NOT_AVAILABLE"))
    (row,) = book.rows()
    assert (row["high_watermark"], row["sampled_at"], row["error"]) == (5, at(0), "LEADER_NOT_AVAILABLE")
    take(book, 20, end(6))
    assert recorded(book)[1:] == [(6, at(20), at(0))]
    assert book.rows()[0]["error"] is None


def test_a_partition_that_never_answered_has_a_row_with_its_error_only() -> None:
    book = SampleBook()
    take(book, 0, NoEnd(None, "TOPIC_AUTHORIZATION_FAILED"))
    assert book.rows() == [
        dict.fromkeys(book.rows()[0]) | PLACES[0]._asdict() | {"error": "TOPIC_AUTHORIZATION_FAILED"}
    ]
    assert book.waiting == []


def test_a_recreated_topic_starts_again() -> None:
    book = SampleBook()
    take(book, 0, end(5, start=2))
    take(book, 10, end(5, start=None, topic_id="b"))
    assert recorded(book) == [(5, at(0), None), (5, at(10), None)]
    (row,) = book.rows()
    assert (row["topic_id"], row["log_start_offset"]) == ("b", None)


def test_a_partition_that_is_no_longer_sampled_has_no_row() -> None:
    book = SampleBook()
    take(book, 0, end(5))
    book.take({}, at(10))
    assert book.rows() == []


def test_the_log_start_offset_stays_if_it_is_not_queried() -> None:
    book = SampleBook()
    take(book, 0, end(5, start=2))
    take(book, 10, end(6, start=None))
    assert [row["log_start_offset"] for row in book.waiting] == [2, 2]
    assert book.starts == {PLACES[0]: "a"}


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(ROUNDS)
def test_every_sample_follows_from_the_rows(
    rounds: Sequence[tuple[int, tuple[LogEnd | NoEnd, LogEnd | NoEnd]]],
) -> None:
    """Each sample equals the last row before it, and `previous_sampled_at` of each row is the sample before."""
    book, seconds = SampleBook(), 0
    samples: dict[TopicPartitionKey, list[tuple[datetime, LogEnd]]] = {place: [] for place in PLACES}
    for pause, answers in rounds:
        seconds += pause
        taken: Answers = dict(zip(PLACES, answers, strict=True))
        book.take(taken, at(seconds))
        for place, answer in taken.items():
            if isinstance(answer, LogEnd):
                samples[place].append((at(seconds), answer))
    for place, seen in samples.items():
        rows = [row for row in book.waiting if (row["topic"], row["partition"]) == place]
        assert told_by(rows, [when for when, _ in seen]) == [(when, values(answer)) for when, answer in seen]
        times = [when for when, _ in seen]
        for before, row in zip([None, *rows], rows, strict=False):
            if row["previous_sampled_at"] is not None:
                assert times.index(row["previous_sampled_at"]) == times.index(row["sampled_at"]) - 1
            if before is not None and values_of(before) == values_of(row):
                assert row["sampled_at"] - before["sampled_at"] >= AT_LEAST_EVERY


def told_by(rows: Sequence[dict[str, Any]], times: Sequence[datetime]) -> list[tuple[datetime, tuple[Any, ...]]]:
    return [(when, values_of([row for row in rows if row["sampled_at"] <= when][-1])) for when in times]


def values(answer: LogEnd) -> tuple[Any, ...]:
    told = answer.leader_id, answer.leader_epoch, answer.log_start_offset
    return (answer.topic_id, *told, answer.high_watermark, answer.last_stable_offset)


def values_of(row: dict[str, Any]) -> tuple[Any, ...]:
    names = "topic_id", "leader_id", "leader_epoch", "log_start_offset", "high_watermark", "last_stable_offset"
    return tuple(row[name] for name in names)


def stands_at(book: SampleBook, seconds: float, high: int, stable: int | None = None) -> None:
    book.take({PLACES[0]: LogEnd("a", 1, 3, 0, high, high if stable is None else stable)}, at(seconds))


def readable(book: SampleBook, seconds: float, offset: int, told: dict[TopicPartitionKey, int | None]) -> None:
    book.take_records({PLACES[0]: offset}, told, at(seconds))


def test_readable_records_are_queried_only_for_idle_ends() -> None:
    book = SampleBook()
    stands_at(book, 0, 10)
    assert dict(book.tails(at(0))) == {}  # it may have moved just now
    stands_at(book, 10, 10)
    assert dict(book.tails(at(10))) == {PLACES[0]: Tail(0, 10)}
    readable(book, 10, 9, {PLACES[0]: None})
    assert dict(book.tails(at(10))) == {PLACES[0]: Tail(0, 9)}
    readable(book, 10, 4, {PLACES[0]: 6})
    assert dict(book.tails(at(10))) == {PLACES[0]: Tail(6, 9)}
    assert [(row["readable_end"], row["sampled_at"]) for row in book.waiting] == [(None, at(0)), (9, at(10))]
    assert book.rows()[0]["readable_end"] == 9
    stands_at(book, 20, 11)
    assert (book.rows()[0]["readable_end"], dict(book.tails(at(20)))) == (None, {})


def test_a_record_below_the_end_shows_that_the_end_is_readable() -> None:
    book = SampleBook()
    for seconds in (0, 600):  # the second look is a row of its own, with which it is one then
        stands_at(book, seconds, 10)
    readable(book, 600, 9, {PLACES[0]: 9})
    assert [(row["readable_end"], row["sampled_at"]) for row in book.waiting] == [(None, at(0)), (10, at(600))]
    assert [row["previous_sampled_at"] for row in book.waiting] == [None, at(0)]


def test_a_query_without_answer_is_repeated_after_a_minute() -> None:
    book = SampleBook()
    for seconds in (0, 10):
        stands_at(book, seconds, 10)
    readable(book, 10, 9, {})
    assert dict(book.tails(at(60))) == {}
    assert dict(book.tails(at(70))) == {PLACES[0]: Tail(0, 10)}


def test_the_blocking_transaction_is_queried_after_a_minute() -> None:
    book, holder = SampleBook(), Holder("ledger-writer", at(-1))
    for seconds in (0, 59):
        stands_at(book, seconds, 10 + seconds, stable=5)
        assert (book.blocked(at(seconds)), dict(book.tails(at(seconds)))) == ([], {})
    stands_at(book, 60, 70, stable=5)
    assert book.blocked(at(60)) == [PLACES[0]]
    book.take_blocking([PLACES[0]], {}, at(60))
    stands_at(book, 100, 75, stable=5)  # the log grows behind it
    assert (book.blocked(at(100)), book.blocked(at(120))) == ([], [PLACES[0]])
    book.take_blocking([PLACES[0]], {PLACES[0]: holder}, at(120))
    assert (book.blocked(at(240)), book.rows()[0]["open_transaction"]) == ([], "ledger-writer")
    stands_at(book, 250, 80, stable=7)  # another one
    assert (book.blocked(at(250)), book.rows()[0]["open_transaction"]) == ([], None)
