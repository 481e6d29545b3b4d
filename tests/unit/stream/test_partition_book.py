from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from offsetstream.cluster.client import PartitionEnds
from offsetstream.stream.partitions.partition_book import PartitionBook
from offsetstream.stream.state.size import Share
from offsetstream.tables.create import create_tables
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import insert_rows, read_rows
from offsetstream.tables.transaction import BatchId
from testkit.tables import append_rows

BATCH, LOAD = BatchId(1, 0), BatchId(1, -1)


@pytest.fixture
def tables(tmp_path: Path) -> PathStore:
    location = PathStore(str(tmp_path))
    create_tables(location, "cluster-1", "new")
    return location


@pytest.fixture
def book(tables: PathStore) -> PartitionBook:
    return PartitionBook(tables, range(3))


def ends(stable: int, high: int | None = None, leader: int | None = 5, epoch: int | None = 9) -> PartitionEnds:
    return PartitionEnds(2, stable, stable if high is None else high, leader, epoch, datetime.now(UTC))


def loaded(book: PartitionBook, partition: int, end: int) -> None:
    book.start_load({partition: end})
    book.finish_load(partition, 10, 2, 4)


def events(tables: PathStore) -> Iterator[dict[str, Any]]:
    rows = read_rows(DeltaTable(tables.table("partition_events")))
    yield from sorted(rows, key=lambda row: (row["offsets_partition"], row["event_at"]))


def test_a_new_book_has_an_empty_row_for_each_partition(book: PartitionBook) -> None:
    empty = dict.fromkeys(load_schema("offsets_partitions").column_names) | {"log_id": 0}
    assert book.rows == {number: empty | {"offsets_partition": number} for number in range(3)}
    assert book.partitions == [0, 1, 2]
    assert book.log_ids == {0: 0, 1: 0, 2: 0}
    assert book.next_offsets == {}


def test_a_job_without_history_ends_what_was_complete(tables: PathStore, book: PartitionBook) -> None:
    for number in (0, 1):
        loaded(book, number, 100)
    book.write(BATCH)
    assert book.without_history == []
    without = PartitionBook(tables, range(3), keeps_history=False)
    assert [row["history_complete_from"] for row in without.rows.values()] == [None, None, None]
    assert without.without_history == []
    loaded(without, 0, 200)
    without.write(BatchId(1, 1))

    again = PartitionBook(tables, range(3))
    assert again.without_history == [0, 1]
    loaded(again, 1, 100)  # nothing has come since
    assert again.rows[1]["history_complete_from"] == again.rows[1]["load_started_at"]
    assert again.without_history == [0]


def test_what_was_written_is_read_again(tables: PathStore, book: PartitionBook) -> None:
    book.observe({number: ends(100) for number in range(3)})
    loaded(book, 1, 100)
    book.write(BATCH)
    again = PartitionBook(tables, range(4))
    assert {number: again.rows[number] for number in range(3)} == book.rows
    assert again.rows[3]["load_state"] is None
    assert again.next_offsets == {1: 100}


def test_a_load_from_start_to_end(book: PartitionBook) -> None:
    before = datetime.now(UTC)
    book.observe({1: ends(100)})
    book.start_load({1: 100})
    row = book.rows[1]
    assert (row["load_state"], row["load_id"], row["load_end_offset"], row["loaded_at"]) == ("LOADING", 1, 100, None)
    assert book.next_offsets == {}
    book.finish_load(1, 10, 2, 4)
    assert (row["load_state"], row["groups_count"], row["offsets_count"]) == ("OWNED", 2, 4)
    assert book.next_offsets == {1: 100}
    assert before <= row["caught_up_at"] <= row["load_started_at"] <= row["loaded_at"] <= datetime.now(UTC)
    assert book.rows[0]["load_state"] is None


def test_a_partition_without_records_is_loaded_too(book: PartitionBook) -> None:
    loaded(book, 0, 0)
    assert book.next_offsets == {0: 0}


def test_a_second_load_does_not_go_back(book: PartitionBook) -> None:
    loaded(book, 1, 100)
    book.advance({1: 150})
    loaded(book, 1, 120)
    assert book.rows[1]["load_id"] == 2
    assert book.next_offsets == {1: 150}


def test_history_is_whole_from_the_first_load_on(book: PartitionBook) -> None:
    loaded(book, 1, 100)
    first = book.rows[1]["load_started_at"]
    assert book.rows[1]["history_complete_from"] == first
    loaded(book, 1, 100)  # nothing came in between
    assert book.rows[1]["history_complete_from"] == first


def test_a_load_of_what_the_stream_never_saw_begins_the_history_anew(book: PartitionBook) -> None:
    loaded(book, 1, 100)
    loaded(book, 1, 101)  # compaction may have removed records between the loads
    assert book.rows[1]["history_complete_from"] == book.rows[1]["load_started_at"]


def test_another_log_begins_at_its_own_start(tables: PathStore, book: PartitionBook) -> None:
    loaded(book, 1, 100)
    book.begin_log(1)
    assert book.log_ids == {0: 0, 1: 1, 2: 0}
    assert book.next_offsets == {}
    loaded(book, 1, 10)
    assert book.next_offsets == {1: 10}
    assert book.rows[1]["history_complete_from"] == book.rows[1]["load_started_at"]
    book.write(LOAD)
    assert [(event["log_id"], event["load_id"]) for event in events(tables)] == [(0, 1), (0, 1), (1, 2), (1, 2)]
    assert PartitionBook(tables, range(3)).log_ids == book.log_ids


def test_batches_advance_and_never_go_back(book: PartitionBook) -> None:
    loaded(book, 0, 10)
    loaded(book, 1, 10)
    book.advance({0: 30, 1: 5})
    assert book.next_offsets == {0: 30, 1: 10}


def test_what_the_cluster_says_is_noted(book: PartitionBook) -> None:
    book.observe({0: ends(90, 100), 2: ends(7, leader=None, epoch=None)})
    noted = ("log_start_offset", "last_stable_offset", "high_watermark", "coordinator_id", "coordinator_epoch")
    assert [book.rows[0][name] for name in noted] == [2, 90, 100, 5, 9]
    assert [book.rows[2][name] for name in noted] == [2, 7, 7, None, None]
    assert [book.rows[number]["coordinator_available"] for number in range(3)] == [True, None, False]


def test_what_an_open_transaction_holds_back_is_timed(tables: PathStore, book: PartitionBook) -> None:
    def since(stable: int, high: int) -> datetime | None:
        book.observe({1: ends(stable, high)})
        seen: datetime | None = book.rows[1]["last_stable_offset_since"]
        return seen

    before = datetime.now(UTC)
    assert since(90, 90) is None
    first = since(90, 100)
    assert first is not None
    assert before <= first <= datetime.now(UTC)
    assert since(90, 200) == first  # it still stands there
    book.write(LOAD)
    assert PartitionBook(tables, range(3)).rows[1]["last_stable_offset_since"] == first
    second = since(95, 200)  # another one does
    assert second is not None
    assert second > first
    assert since(200, 200) is None
    third = since(200, 201)
    book.begin_log(1)
    fourth = since(200, 201)
    assert third is not None
    assert fourth is not None
    assert fourth > third


def test_caught_up_is_what_is_applied_to_the_last_stable_offset(book: PartitionBook) -> None:
    for number in range(3):
        loaded(book, number, 100)
    book.start_load({2: 100})
    long_ago = datetime.now(UTC) - timedelta(days=1)
    for row in book.rows.values():
        row["caught_up_at"] = long_ago
    before = datetime.now(UTC)
    book.observe({0: ends(100, 120), 1: ends(101), 2: ends(100)})
    assert book.rows[0]["caught_up_at"] >= before
    assert book.rows[1]["caught_up_at"] == long_ago
    assert book.rows[2]["caught_up_at"] == long_ago  # its rows are not whole


def test_a_load_is_told_by_two_events(tables: PathStore, book: PartitionBook) -> None:
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


def test_a_new_log_starts_from_nothing(tmp_path: Path) -> None:
    tables = PathStore(str(tmp_path))
    create_tables(tables, "cluster", "new")
    book = PartitionBook(tables, [0])
    book.start_load({0: 100})
    book.finish_load(0, records=1, groups=1, offsets=1)
    book.begin_log(0)
    assert book.log_ids == {0: 1}
    assert book.next_offsets == {}
    book.start_load({0: 10})
    book.finish_load(0, records=1, groups=1, offsets=1)
    assert book.next_offsets == {0: 10}


def told(tables: PathStore) -> list[tuple[Any, ...]]:
    """(event, broker before, epoch before, broker, epoch) of each event that was observed of the cluster."""
    columns = ("previous_coordinator_id", "previous_coordinator_epoch", "coordinator_id", "coordinator_epoch")
    found = [event for event in events(tables) if event["source"] == "broker"]
    return sorted((event["event"], *(event[name] for name in columns)) for event in found)


def observed(book: PartitionBook, leader: int | None, epoch: int | None) -> tuple[Any, ...]:
    book.observe({1: ends(100, leader=leader, epoch=epoch)})
    book.write(LOAD)
    return tuple(book.rows[1][f"coordinator_{name}"] for name in ("id", "epoch", "available"))


def test_another_broker_has_taken_over(tables: PathStore, book: PartitionBook) -> None:
    append_rows(Path(tables.root), "groups", [{"offsets_partition": 1, "group_id": group} for group in "ab"])
    append_rows(Path(tables.root), "groups", [{"offsets_partition": 2, "group_id": "c"}])
    append_rows(Path(tables.root), "committed_offsets", [{"offsets_partition": 1, "group_id": "a"}])
    loaded(book, 1, 100)
    assert observed(book, 5, 9) == (5, 9, True)
    assert told(tables) == []  # nothing is known of the time before
    assert observed(book, 6, 10) == (6, 10, True)
    assert told(tables) == [("coordinator moved", 5, 9, 6, 10), ("unloaded", 5, 9, 6, 10)]
    (unloaded,) = [event for event in events(tables) if event["event"] == "unloaded"]
    assert (unloaded["groups"], unloaded["offsets"], unloaded["load_id"]) == (2, 1, 1)
    assert (book.rows[1]["groups_count"], book.rows[1]["offsets_count"]) == (2, 1)
    assert (book.rows[1]["load_state"], book.rows[1]["load_id"]) == ("OWNED", 1)


def test_a_partition_that_is_not_loaded_is_unloaded_without_counts(tables: PathStore, book: PartitionBook) -> None:
    observed(book, 5, 9)
    observed(book, 6, 10)
    (unloaded,) = [event for event in events(tables) if event["event"] == "unloaded"]
    assert (unloaded["groups"], unloaded["offsets"]) == (None, None)


def test_the_same_broker_with_a_higher_epoch_has_not_moved(tables: PathStore, book: PartitionBook) -> None:
    observed(book, 5, 9)
    assert observed(book, 5, 11) == (5, 11, True)
    assert told(tables) == [("leader epoch changed", 5, 9, 5, 11)]


def test_a_lower_epoch_is_ignored(tables: PathStore, book: PartitionBook) -> None:
    observed(book, 5, 9)
    assert observed(book, 6, 8) == (5, 9, True)
    assert observed(book, None, 8) == (5, 9, True)
    assert told(tables) == []


def test_a_partition_without_a_leader_keeps_its_last_coordinator(tables: PathStore, book: PartitionBook) -> None:
    observed(book, 5, 9)
    assert observed(book, None, None) == (5, 9, False)
    book.observe({1: ends(100)})
    book.lose_coordinators([1])
    assert book.rows[1]["coordinator_available"] is False
    assert observed(book, 6, 10) == (6, 10, True)
    assert [event[0] for event in told(tables)] == ["coordinator moved", "unloaded"]


def test_what_is_seen_again_is_told_once(tables: PathStore, book: PartitionBook) -> None:
    loaded(book, 1, 100)
    observed(book, 5, 9)
    crashed = PartitionBook(tables, range(3))
    crashed.observe({1: ends(100, leader=6, epoch=10)})
    insert_rows(tables, "partition_events", crashed._events, BATCH)  # and no more: the rows were not written
    again = PartitionBook(tables, range(3))
    again.observe({1: ends(100, leader=7, epoch=11)})
    again.write(BATCH)
    again.write(LOAD)
    assert told(tables) == [
        ("coordinator moved", 5, 9, 6, 10),
        ("coordinator moved", 5, 9, 7, 11),
        ("unloaded", 5, 9, 6, 10),
        ("unloaded", 5, 9, 7, 11),
    ]


def test_a_recreated_topic_counts_its_epochs_anew(tables: PathStore, book: PartitionBook) -> None:
    loaded(book, 1, 100)
    observed(book, 5, 9)
    book.begin_log(1)
    assert observed(book, 5, 0) == (5, 0, True)
    assert told(tables) == []


def test_news_are_all_but_being_caught_up(book: PartitionBook) -> None:
    loaded(book, 1, 100)
    book.observe({1: ends(100)})
    book.write(LOAD)
    book.observe({1: ends(100)})
    assert not book.has_news
    for changed in (ends(101), ends(100, 102), ends(100, leader=6, epoch=10)):
        book.observe({1: changed})
        assert book.has_news
        book.write(LOAD)


def test_a_failed_load(tables: PathStore, book: PartitionBook) -> None:
    loaded(book, 0, 10)
    book.start_load({1: 100})
    book.fail_loads("the broker went away")
    book.write(LOAD)
    assert [book.rows[number]["load_state"] for number in range(3)] == ["OWNED", "FAILED", None]
    (failed,) = [event for event in events(tables) if event["event"] == "load failed"]
    assert (failed["offsets_partition"], failed["load_id"], failed["detail"]) == (1, 1, "the broker went away")


def test_log_ids_are_those_of_now(book: PartitionBook) -> None:
    log_ids = book.log_ids
    book.begin_log(2)
    assert log_ids == {0: 0, 1: 0, 2: 1}


def test_a_raised_epoch_is_written_when_the_log_was_looked_at(tables: PathStore, book: PartitionBook) -> None:
    """Else a kill, or a cluster that falls silent, between the two would leave a log that was cut unnoticed."""
    loaded(book, 1, 100)
    observed(book, 5, 9)
    observed(book, 6, 10)
    observed(book, 7, 11)
    again = PartitionBook(tables, range(3))
    assert (again.rows[1]["coordinator_id"], again.rows[1]["coordinator_epoch"]) == (5, 9)
    again.observe({1: ends(100, leader=7, epoch=11)})
    assert set(again.epochs_raised) == {1}
    again.write(BATCH)
    assert not again.has_news
    again.take_epochs([0, 1])
    assert (again.has_news, again.epochs_raised) == (True, {})
    again.write(BatchId(1, 1))
    last = PartitionBook(tables, range(3))
    assert (last.rows[1]["coordinator_id"], last.rows[1]["coordinator_epoch"]) == (7, 11)
    last.observe({1: ends(100, leader=7, epoch=11)})
    assert not last.epochs_raised


def test_a_removed_partition_is_told_beside_its_last_unload(tables: PathStore, book: PartitionBook) -> None:
    loaded(book, 2, 100)
    book.observe({2: ends(100)})
    book.observe({2: ends(100, leader=6, epoch=10)})
    book.take_epochs([2])
    book.write(BATCH)
    fewer = PartitionBook(tables, range(2))
    fewer.unload_gone()
    fewer.write(BatchId(2, 0))
    assert [event["event"] for event in events(tables)][-1] == "removed"
    assert Counter(event["event"] for event in events(tables))["unloaded"] == 1


def seen(number: int, stable: int, at: datetime) -> dict[int, PartitionEnds]:
    return {number: PartitionEnds(0, stable, stable, 5, 9, at)}


def newest(at: datetime) -> dict[int, Share]:
    return {1: Share(1, round(at.timestamp() * 1000))}


def test_a_load_is_caught_up_with_what_was_there_when_its_end_was_asked_for(book: PartitionBook) -> None:
    asked_at = datetime.now(UTC) - timedelta(minutes=10)
    book.observe(seen(1, 100, asked_at))
    loaded(book, 1, 100)
    assert book.rows[1]["caught_up_at"] == asked_at
    assert timedelta(minutes=10) <= book.behind_for(1) < timedelta(minutes=11)


def test_a_partition_that_is_never_at_its_end_is_caught_up_with_what_was_there_before(book: PartitionBook) -> None:
    loaded(book, 1, 100)
    start = datetime.now(UTC)
    for at in range(5):
        book.observe(seen(1, 110 + 10 * at, start + timedelta(seconds=at)))
        book.advance({1: 105 + 10 * at})
    assert book.rows[1]["caught_up_at"] == start + timedelta(seconds=3)


def test_how_long_a_partition_is_behind_is_told_by_the_times_of_records_too(book: PartitionBook) -> None:
    now = datetime.now(UTC)
    book.observe(seen(1, 100, now))
    loaded(book, 1, 100)
    assert book.behind_for(1) < timedelta(minutes=1)
    book.clocks.read(newest(now + timedelta(days=2)))
    assert book.behind_for(1) > timedelta(days=1)
    book.observe(seen(1, 100, now))  # at that time of the brokers' it had everything
    assert book.behind_for(1) < timedelta(minutes=1)


def test_what_was_gone_unread_ends_what_was_complete(book: PartitionBook) -> None:
    for number in range(3):
        loaded(book, number, 100)
    complete = {number: row["history_complete_from"] for number, row in book.rows.items()}
    before = datetime.now(UTC)
    book.advance({0: 150, 1: 150}, [1])
    assert book.rows[1]["history_complete_from"] >= before
    assert [book.rows[number]["history_complete_from"] for number in (0, 2)] == [complete[0], complete[2]]


def test_what_is_complete_is_told_by_the_clock_that_is_ahead(book: PartitionBook) -> None:
    ahead = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=5)
    book.clocks.read(newest(ahead))
    loaded(book, 1, 100)
    assert book.rows[1]["history_complete_from"] == ahead
    book.clocks.read(newest(ahead + timedelta(hours=1)))
    book.advance({1: 150}, [1])
    assert book.rows[1]["history_complete_from"] == ahead + timedelta(hours=1)


def test_a_time_that_no_clock_has_reached_is_taken_back(book: PartitionBook) -> None:
    now = datetime.now(UTC)
    book.clocks.read(newest(now + timedelta(days=9)))  # which cannot be
    loaded(book, 1, 100)
    book.clocks.read(newest(now - timedelta(seconds=1)))
    book.advance({1: 150})
    assert now <= book.rows[1]["history_complete_from"] <= datetime.now(UTC)
