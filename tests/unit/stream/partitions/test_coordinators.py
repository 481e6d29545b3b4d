"""The coordinators of partitions, and their events."""

from collections import Counter
from pathlib import Path
from typing import Any

from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.transaction import BatchId
from testkit.tables import append_rows
from tests.unit.stream.partitions.book import BATCH, LOAD, ends, events, loaded


def told(tables: PathStore) -> list[tuple[Any, ...]]:
    """(event, broker before, epoch before, broker, epoch) of each event of the cluster."""
    columns = ("previous_coordinator_id", "previous_coordinator_epoch", "coordinator_id", "coordinator_epoch")
    found = [event for event in events(tables) if event["source"] == "broker"]
    return sorted((event["event"], *(event[name] for name in columns)) for event in found)


def observed(book: PartitionBook, leader: int | None, epoch: int | None) -> tuple[Any, ...]:
    book.observe({1: ends(100, leader=leader, epoch=epoch)})
    book.write(LOAD)
    return tuple(getattr(book.rows[1], f"coordinator_{name}") for name in ("id", "epoch", "available"))


def test_a_move_of_the_coordinator_writes_events(tables: PathStore, book: PartitionBook) -> None:
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
    assert (book.rows[1].groups_count, book.rows[1].offsets_count) == (2, 1)
    assert (book.rows[1].load_state, book.rows[1].load_id) == ("OWNED", 1)


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
    book.coordinators.lose([1])
    assert book.rows[1].coordinator_available is False
    assert observed(book, 6, 10) == (6, 10, True)
    assert [event[0] for event in told(tables)] == ["coordinator moved", "unloaded"]


def test_events_before_a_crash_are_written_once(tables: PathStore, book: PartitionBook) -> None:
    loaded(book, 1, 100)
    observed(book, 5, 9)
    crashed = PartitionBook(tables, range(3))
    crashed.observe({1: ends(100, leader=6, epoch=10)})
    crashed._events.write(BATCH)  # and no more: the rows were not written
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


def test_a_recreated_topic_starts_its_epochs_again(tables: PathStore, book: PartitionBook) -> None:
    loaded(book, 1, 100)
    observed(book, 5, 9)
    book.start_log(1)
    assert observed(book, 5, 0) == (5, 0, True)
    assert told(tables) == []


def test_a_raised_epoch_is_written_after_the_log_was_checked(tables: PathStore, book: PartitionBook) -> None:
    """Otherwise a truncated log stays unnoticed if the job is killed, or the cluster stops answering, in between."""
    loaded(book, 1, 100)
    observed(book, 5, 9)
    observed(book, 6, 10)
    observed(book, 7, 11)
    again = PartitionBook(tables, range(3))
    assert (again.rows[1].coordinator_id, again.rows[1].coordinator_epoch) == (5, 9)
    again.observe({1: ends(100, leader=7, epoch=11)})
    assert set(again.coordinators.raised) == {1}
    again.write(BATCH)
    assert not again.has_news
    again.coordinators.settle([0, 1])
    assert (again.has_news, again.coordinators.raised) == (True, {})
    again.write(BatchId(1, 1))
    last = PartitionBook(tables, range(3))
    assert (last.rows[1].coordinator_id, last.rows[1].coordinator_epoch) == (7, 11)
    last.observe({1: ends(100, leader=7, epoch=11)})
    assert not last.coordinators.raised


def test_a_removed_partition_has_an_event_after_its_last_unload(tables: PathStore, book: PartitionBook) -> None:
    loaded(book, 2, 100)
    book.observe({2: ends(100)})
    book.observe({2: ends(100, leader=6, epoch=10)})
    book.coordinators.settle([2])
    book.write(BATCH)
    fewer = PartitionBook(tables, range(2))
    fewer.unload_gone()
    fewer.write(BatchId(2, 0))
    assert [event["event"] for event in events(tables)][-1] == "removed"
    assert Counter(event["event"] for event in events(tables))["unloaded"] == 1
