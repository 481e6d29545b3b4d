"""Since when a history is complete."""

from datetime import UTC, datetime, timedelta

from offsetstream.stream.partitions.partition_book import PartitionBook
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.transaction import BatchId
from tests.unit.stream.partitions.book import BATCH, loaded, newest

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
