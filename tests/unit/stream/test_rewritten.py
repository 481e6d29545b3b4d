from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from offsetstream.cluster.client import PartitionEnds
from offsetstream.cluster.log_records import LogRecord
from offsetstream.codec.encode import encode_record
from offsetstream.errors import UnreachableError
from offsetstream.stream.partition_book import PartitionBook
from offsetstream.stream.rewritten import RewrittenLogs
from offsetstream.tables.create import create_tables
from offsetstream.tables.location import TablesLocation
from tests.delta import append_rows

TIME = datetime(2026, 11, 21, 12, 0, 0, 123_000, UTC)
TIME_MS = int(TIME.timestamp() * 1000)
END = 50


class Log:
    """What a partition's log has at offsets, and which of them were asked for."""

    def __init__(self, records: Mapping[int, LogRecord | None] | None = None) -> None:
        self.records = records
        self.asked: list[dict[int, int]] = []

    def at(self, places: Mapping[int, int]) -> Mapping[int, LogRecord | None]:
        self.asked.append(dict(places))
        if self.records is None:
            raise UnreachableError("no broker answers")
        return self.records


def commit(group_id: str, timestamp_ms: int = TIME_MS) -> LogRecord:
    key = {"type": 1, "data": {"group": group_id, "topic": "orders", "partition": 0}}
    data = {"offset": 7, "leaderEpoch": -1, "metadata": "", "commitTimestamp": timestamp_ms}
    return LogRecord(timestamp_ms, *encode_record(key, {"version": 3, "data": data}))


@pytest.fixture
def tables(tmp_path: Path) -> TablesLocation:
    location = TablesLocation(str(tmp_path))
    create_tables(location, "cluster-1", "new")
    return location


def row(offset: int, **columns: Any) -> dict[str, Any]:
    place = {"offsets_partition": 1, "log_id": 0, "record_offset": offset}
    return place | {"group_id": "orders-app", "record_timestamp": TIME, "written_day": TIME.date()} | columns


def book_with_a_raised_epoch(tables: TablesLocation, stable: int = END, start: int = 0) -> PartitionBook:
    book = PartitionBook(tables, range(3))
    book.observe({number: PartitionEnds(0, END, END, 5, 9, datetime.now(UTC)) for number in range(3)})
    for number in range(3):
        book.start_load({number: END})
        book.finish_load(number, 10, 2, 4)
    book.observe({1: PartitionEnds(start, stable, END + 9, 5, 10, datetime.now(UTC))})
    assert set(book.epochs_raised) == {1}
    return book


def begun(tables: TablesLocation, book: PartitionBook, log: Log) -> list[int]:
    return RewrittenLogs(tables, book, None, lambda: "fc7eX-5oQtGa1Yl2yq1bQA", log.at).begin()


def test_without_a_raised_epoch_nothing_is_asked(tables: TablesLocation) -> None:
    book, log = PartitionBook(tables, range(3)), Log()
    assert begun(tables, book, log) == []
    assert log.asked == []


def test_the_same_record_is_no_new_log(tables: TablesLocation) -> None:
    append_rows(Path(tables.root), "offset_commits", [row(3), row(40)])
    append_rows(Path(tables.root), "group_records", [row(39, group_id="another")])
    book, log = book_with_a_raised_epoch(tables), Log({1: commit("orders-app")})
    assert begun(tables, book, log) == []
    assert log.asked == [{1: 40}]
    assert not book.epochs_raised
    assert book.rows[1]["log_id"] == 0


@pytest.mark.parametrize("record", [commit("orders-app", TIME_MS + 1), commit("another")], ids=["time", "group"])
def test_another_record_begins_a_new_log(tables: TablesLocation, record: LogRecord) -> None:
    append_rows(Path(tables.root), "group_records", [row(40)])
    book = book_with_a_raised_epoch(tables)
    assert begun(tables, book, Log({1: record})) == [1]
    assert (book.rows[1]["log_id"], book.rows[1]["next_offset"], book.epochs_raised) == (1, None, {})
    assert book.rows[0]["log_id"] == 0


def test_a_record_that_compaction_removed_is_no_new_log(tables: TablesLocation) -> None:
    append_rows(Path(tables.root), "offset_commits", [row(40)])
    assert begun(tables, book_with_a_raised_epoch(tables), Log({1: None})) == []
    assert begun(tables, book_with_a_raised_epoch(tables, start=41), Log()) == []


def test_what_was_applied_behind_the_last_stable_offset_is_another_log(tables: TablesLocation) -> None:
    append_rows(Path(tables.root), "offset_commits", [row(40)])
    assert begun(tables, book_with_a_raised_epoch(tables, stable=40), Log()) == [1]


def test_an_older_log_and_a_partition_without_records_are_not_asked_for(tables: TablesLocation) -> None:
    append_rows(Path(tables.root), "offset_commits", [row(40, log_id=4)])
    log = Log()
    assert begun(tables, book_with_a_raised_epoch(tables), log) == []
    assert log.asked == []


def test_without_history_the_last_record_of_the_state_counts(tables: TablesLocation) -> None:
    append_rows(Path(tables.root), "committed_offsets", [row(30)])
    append_rows(Path(tables.root), "group_cells", [row(20)])
    log = Log({1: commit("orders-app", TIME_MS + 1)})
    assert begun(tables, book_with_a_raised_epoch(tables), log) == [1]
    assert log.asked == [{1: 30}]


def test_an_undecodable_record_is_known_by_its_time(tables: TablesLocation) -> None:
    append_rows(Path(tables.root), "undecodable_records", [{k: v for k, v in row(45).items() if k != "group_id"}])
    same = LogRecord(TIME_MS, None, b"garbage")
    assert begun(tables, book_with_a_raised_epoch(tables), Log({1: same})) == []
    other = LogRecord(int((TIME + timedelta(milliseconds=1)).timestamp() * 1000), None, b"garbage")
    assert begun(tables, book_with_a_raised_epoch(tables), Log({1: other})) == [1]


def test_a_record_whose_time_the_tables_cannot_hold_is_known_by_its_group(tables: TablesLocation) -> None:
    append_rows(Path(tables.root), "offset_commits", [row(45, record_timestamp=None)])
    assert begun(tables, book_with_a_raised_epoch(tables), Log({1: commit("orders-app", 2**60)})) == []
    assert begun(tables, book_with_a_raised_epoch(tables), Log({1: commit("another", 2**60)})) == [1]


def test_a_cluster_that_does_not_answer_is_asked_again(tables: TablesLocation) -> None:
    append_rows(Path(tables.root), "offset_commits", [row(40)])
    book, log = book_with_a_raised_epoch(tables), Log()
    with pytest.raises(UnreachableError):
        begun(tables, book, log)
    assert set(book.epochs_raised) == {1}
    log.records = {1: commit("another")}
    assert begun(tables, book, log) == [1]


def test_every_log_of_a_recreated_topic_is_new(tables: TablesLocation) -> None:
    book, log = book_with_a_raised_epoch(tables), Log()
    present = ["old"]
    logs = RewrittenLogs(tables, book, "old", lambda: present[0], log.at)
    assert logs.begin() == []
    present[0] = "new"
    assert logs.begin() == [0, 1, 2]
    assert {row["log_id"] for row in book.rows.values()} == {1}
    assert logs.begin() == []
