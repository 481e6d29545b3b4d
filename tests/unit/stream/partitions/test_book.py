from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.partitions.rows import PartitionRow
from offsetstream.tables import small_tables
from offsetstream.tables.filters import NO_FILTERS, Filters
from offsetstream.tables.names import OFFSETS_PARTITIONS
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.transaction import BatchId
from testkit.tables import append_rows
from tests.unit.stream.partitions.book import BATCH, LOAD, ends, events, loaded, newest, seen


def test_a_new_book_has_an_empty_row_for_each_partition(book: PartitionBook) -> None:
    assert book.rows == {number: PartitionRow(number) for number in range(3)}
    assert book.partitions == [0, 1, 2]
    assert book.log_ids == {0: 0, 1: 0, 2: 0}
    assert book.next_offsets == {}


def test_what_was_written_is_read_again(tables: PathStore, book: PartitionBook) -> None:
    book.observe({number: ends(100) for number in range(3)})
    loaded(book, 1, 100)
    book.write(BATCH)
    again = PartitionBook(tables, range(4))
    assert {number: again.rows[number] for number in range(3)} == book.rows
    assert again.rows[3].load_state is None
    assert again.next_offsets == {1: 100}


def test_a_book_that_is_written_again_after_a_conflict_has_its_rows(
    tables: PathStore, book: PartitionBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else commits between its look at the table and its commit."""
    book.write(LOAD)
    loaded(book, 1, 100)
    arrow, others = small_tables._arrow, [PathStore(tables.root)]

    def beside_another(name: str, rows: Collection[small_tables.Row]) -> pa.Table:
        if others and name == OFFSETS_PARTITIONS:
            small_tables.clear_rows(others.pop(), name)
        return arrow(name, rows)

    monkeypatch.setattr(small_tables, "_arrow", beside_another)
    book.write(LOAD)
    assert others == []
    assert PartitionBook(tables, range(3)).rows == book.rows


def test_a_load_from_start_to_end(book: PartitionBook) -> None:
    before = datetime.now(UTC)
    book.observe({1: ends(100)})
    book.start_load({1: 100})
    row = book.rows[1]
    assert (row.load_state, row.load_id, row.load_end_offset, row.loaded_at) == ("LOADING", 1, 100, None)
    assert book.next_offsets == {}
    book.finish_load(1, 10, 2, 4)
    row = book.rows[1]
    assert (row.load_state, row.groups_count, row.offsets_count) == ("OWNED", 2, 4)
    assert book.next_offsets == {1: 100}
    times = [before, row.caught_up_at, row.load_started_at, row.loaded_at, datetime.now(UTC)]
    assert times == sorted(time for time in times if time is not None)
    assert book.rows[0].load_state is None
    loaded(book, 0, 0)  # it has no records
    assert book.next_offsets == {0: 0, 1: 100}


def test_a_second_load_does_not_move_the_position_back(book: PartitionBook) -> None:
    loaded(book, 1, 100)
    book.advance({1: 150})
    loaded(book, 1, 120)
    assert book.rows[1].load_id == 2
    assert book.next_offsets == {1: 150}


def test_a_new_log_is_loaded_from_its_start(tables: PathStore, book: PartitionBook) -> None:
    loaded(book, 1, 100)
    log_ids = book.log_ids
    book.start_log(1)
    assert log_ids == book.log_ids == {0: 0, 1: 1, 2: 0}
    assert book.next_offsets == {}
    loaded(book, 1, 10)
    assert book.next_offsets == {1: 10}
    assert book.rows[1].history_complete_from == book.rows[1].load_started_at
    book.write(LOAD)
    assert [(event["log_id"], event["load_id"]) for event in events(tables)] == [(0, 1), (0, 1), (1, 2), (1, 2)]
    assert PartitionBook(tables, range(3)).log_ids == book.log_ids


def test_changed_filters_start_a_new_log(tables: PathStore, book: PartitionBook) -> None:
    some, others = Filters(group_exclude="a"), Filters(topic_filter="b")
    assert not book.filter_by(some)  # of tables without a load there is nothing to take back
    assert book.log_ids == {0: 0, 1: 0, 2: 0}
    book.start_load({1: 100})
    book.finish_load(1, 10, 2, 4, filtered=6)
    book.advance({1: 150}, filtered={1: 3})
    book.write(BATCH)
    again = PartitionBook(tables, range(3))
    assert not again.filter_by(some)
    assert (again.rows[1].filters, again.rows[1].filtered_count) == (some.text, 9)
    assert again.filter_by(others)
    assert again.log_ids == {0: 0, 1: 1, 2: 0}
    assert again.next_offsets == {}
    assert {row.filters for row in again.rows.values()} == {others.text}
    loaded(again, 1, 150)
    assert again.rows[1].filtered_count == 0
    assert again.rows[1].history_complete_from == again.rows[1].load_started_at
    assert again.filter_by(NO_FILTERS)
    loaded(again, 1, 150)
    assert again.log_ids[1] == 2
    assert again.rows[1].filtered_count is None


def test_batches_move_the_position_forward_only(book: PartitionBook) -> None:
    loaded(book, 0, 10)
    loaded(book, 1, 10)
    book.advance({0: 30, 1: 5})
    assert book.next_offsets == {0: 30, 1: 10}


def test_the_row_has_what_the_cluster_returned(book: PartitionBook) -> None:
    book.observe({0: ends(90, 100), 2: ends(7, leader=None, epoch=None)})
    noted = ("log_start_offset", "last_stable_offset", "high_watermark", "coordinator_id", "coordinator_epoch")
    assert [getattr(book.rows[0], name) for name in noted] == [2, 90, 100, 5, 9]
    assert [getattr(book.rows[2], name) for name in noted] == [2, 7, 7, None, None]
    assert [book.rows[number].coordinator_available for number in range(3)] == [True, None, False]


def test_the_row_has_since_when_a_transaction_blocks_it(tables: PathStore, book: PartitionBook) -> None:
    def since(stable: int, high: int) -> datetime | None:
        book.observe({1: ends(stable, high)})
        return book.rows[1].last_stable_offset_since

    before = datetime.now(UTC)
    assert since(90, 90) is None
    first = since(90, 100)
    assert first is not None
    assert before <= first <= datetime.now(UTC)
    assert since(90, 200) == first  # it still stands there
    book.write(LOAD)
    assert PartitionBook(tables, range(3)).rows[1].last_stable_offset_since == first
    second = since(95, 200)  # another one does
    assert second is not None
    assert second > first
    assert since(200, 200) is None
    third = since(200, 201)
    book.start_log(1)
    fourth = since(200, 201)
    assert third is not None
    assert fourth is not None
    assert fourth > third


def test_a_partition_applied_to_its_last_stable_offset_is_caught_up(book: PartitionBook) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=1)
    for number in range(3):
        book.observe(seen(number, 100, long_ago))
        loaded(book, number, 100)
    book.start_load({2: 100})
    before = datetime.now(UTC)
    book.observe({0: ends(100, 120), 1: ends(101), 2: ends(100)})
    assert (book.rows[0].caught_up_at or long_ago) >= before
    assert book.rows[1].caught_up_at == long_ago
    assert book.rows[2].caught_up_at == long_ago  # its rows are not whole


def test_a_load_writes_two_events(tables: PathStore, book: PartitionBook) -> None:
    book.observe({1: ends(100)})
    loaded(book, 1, 100)
    book.write(LOAD)
    started, ended = events(tables)
    shared = {"offsets_partition": 1, "log_id": 0, "load_id": 1, "source": "job"}
    shared |= {"coordinator_id": 5, "coordinator_epoch": 9, "checkpoint_id": 1, "batch_id": -1}
    assert started.items() >= (shared | {"event": "load started", "records": None}).items()
    assert ended.items() >= (shared | {"event": "loaded", "records": 10, "groups": 2, "offsets": 4}).items()
    took = (ended["event_at"] - started["event_at"]).total_seconds() * 1000
    assert abs(ended["milliseconds"] - took) < 1


def test_events_are_written_once(tables: PathStore, book: PartitionBook) -> None:
    loaded(book, 1, 100)
    book.write(LOAD)
    book.write(LOAD)
    assert len(list(events(tables))) == 2
    loaded(book, 1, 100)
    book.write(BATCH)
    assert [event["load_id"] for event in events(tables)] == [1, 1, 2, 2]


def test_events_of_an_interrupted_load_are_not_written_again(tables: PathStore, book: PartitionBook) -> None:
    book.start_load({1: 100})
    book.write(LOAD)
    restarted = PartitionBook(tables, range(3))
    loaded(restarted, 1, 100)
    restarted.write(LOAD)
    found = [(event["event"], event["load_id"]) for event in events(tables)]
    assert found == [("load started", 1), ("load started", 2), ("loaded", 2)]


def test_a_batch_writes_the_book_once(tables: PathStore, book: PartitionBook) -> None:
    loaded(book, 1, 100)
    book.write(BATCH)
    book.advance({1: 200})
    book.write(BATCH)
    assert PartitionBook(tables, range(3)).next_offsets == {1: 100}
    book.write(BatchId(1, 1))
    assert PartitionBook(tables, range(3)).next_offsets == {1: 200}


@pytest.mark.parametrize(("log_start", "load_state"), [(41, "OWNED"), (42, "OWNED"), (43, "UNLOADED")])
def test_a_partition_is_loaded_again_if_its_log_lost_a_record_of_the_tables(
    tables: PathStore, book: PartitionBook, log_start: int, load_state: str
) -> None:
    rows = [{"offsets_partition": 1, "log_id": 0, "group_id": "g", "record_offset": offset} for offset in (42, 50)]
    append_rows(Path(tables.root), "group_cells", rows)
    loaded(book, 1, 100)
    book.observe({1: replace(ends(100), log_start_offset=log_start)})
    book.unload_cut([1])
    assert book.rows[1].load_state == load_state


def test_every_change_but_caught_up_at_is_news(book: PartitionBook) -> None:
    loaded(book, 1, 100)
    book.observe({1: ends(100)})
    book.write(LOAD)
    book.observe({1: ends(100)})
    assert not book.has_news
    for changed in (ends(101), ends(100, 102), ends(100, leader=6, epoch=10)):
        book.observe({1: changed})
        assert book.has_news
        book.write(LOAD)


def test_a_failed_load_is_marked_and_has_an_event(tables: PathStore, book: PartitionBook) -> None:
    loaded(book, 0, 10)
    book.start_load({1: 100})
    book.fail_loads("the broker went away")
    book.write(LOAD)
    assert [book.rows[number].load_state for number in range(3)] == ["OWNED", "FAILED", None]
    (failed,) = [event for event in events(tables) if event["event"] == "load failed"]
    assert (failed["offsets_partition"], failed["load_id"], failed["detail"]) == (1, 1, "the broker went away")


def test_a_load_is_caught_up_as_of_the_query_of_its_end(book: PartitionBook) -> None:
    asked_at = datetime.now(UTC) - timedelta(minutes=10)
    book.observe(seen(1, 100, asked_at))
    loaded(book, 1, 100)
    assert book.rows[1].caught_up_at == asked_at
    assert timedelta(minutes=10) <= book.behind_for(1) < timedelta(minutes=11)


def test_a_partition_that_is_never_at_its_end_is_caught_up_as_of_an_earlier_end(book: PartitionBook) -> None:
    loaded(book, 1, 100)
    start = datetime.now(UTC)
    for at in range(5):
        book.observe(seen(1, 110 + 10 * at, start + timedelta(seconds=at)))
        book.advance({1: 105 + 10 * at})
    assert book.rows[1].caught_up_at == start + timedelta(seconds=3)


def test_timestamps_of_records_count_for_how_long_a_partition_is_behind(book: PartitionBook) -> None:
    now = datetime.now(UTC)
    book.observe(seen(1, 100, now))
    loaded(book, 1, 100)
    assert book.behind_for(1) < timedelta(minutes=1)
    book.clocks.read(newest(now + timedelta(days=2)))
    assert book.behind_for(1) > timedelta(days=1)
    book.observe(seen(1, 100, now))  # at that time of the brokers' it had everything
    assert book.behind_for(1) < timedelta(minutes=1)
