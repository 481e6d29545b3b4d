"""How a job continues the samples of the job before it, with exact times."""

import shutil
from datetime import datetime
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError

from offsetstream.cluster.log_ends import RecordTimes, TopicPartitionKey
from offsetstream.errors import LeaseError, TablesError
from offsetstream.stream.sampling.sample_book import SampleBook, Tail
from offsetstream.stream.sampling.sampler import Positions, SampleTables, read_samples
from offsetstream.tables.names import END_OFFSETS, TOPIC_PARTITIONS
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.store import Transaction
from offsetstream.tables.transaction import BatchId, load_app_id
from testkit.tables import new_tables
from tests.unit.stream.sampling.test_sample_book import PLACES, at, end, ms, recorded, take

BATCH = BatchId(1, -1)


def write(tables: PathStore, book: SampleBook, *, ends: bool = True) -> None:
    SampleTables(tables).write_topic_partitions(book.rows(), BATCH)
    if ends:
        SampleTables(tables).write_end_offsets(book.waiting, BATCH)
        book.waiting = []


def sampled(*looks: tuple[int, int]) -> SampleBook:
    """The book of a job that saw these ends, at these seconds."""
    book = SampleBook()
    for seconds, high in looks:
        take(book, seconds, end(high))
    return book


def recalled(tables: PathStore) -> SampleBook:
    book = SampleBook()
    book.recall(*read_samples(tables))
    return book


def test_restart_continues_with_the_last_samples(tables: PathStore) -> None:
    before = sampled((0, 5), (10, 5))
    write(tables, before)

    book = recalled(tables)
    assert book.rows() == before.rows()
    assert book.waiting == []
    take(book, 300, end(5))
    assert book.waiting == []
    take(book, 310, end(6))
    assert recorded(book) == [(6, at(310), at(300))]


def test_an_end_that_moved_while_no_job_ran_is_valid_until_the_last_sample(tables: PathStore) -> None:
    before = sampled((0, 5), (10, 5))
    write(tables, before)
    book = recalled(tables)
    take(book, 7200, end(6))
    assert recorded(book) == [(6, at(7200), at(10))]


def test_the_newest_row_that_a_killed_job_did_not_write_is_added(tables: PathStore) -> None:
    before = sampled((0, 5))
    write(tables, before)
    for seconds, high in ((30, 6), (40, 7), (50, 7)):
        take(before, seconds, end(high))
    write(tables, before, ends=False)

    book = recalled(tables)
    assert recorded(book) == [(7, at(40), at(0))]
    take(book, 90, end(8))
    assert recorded(book)[1:] == [(8, at(90), at(50))]


@pytest.mark.parametrize("seconds", [20, 90])
@pytest.mark.parametrize("high", [9, 12])
def test_rows_of_a_job_killed_between_its_two_writes_are_not_repeated(
    tables: PathStore, seconds: int, high: int
) -> None:
    """Records show when the end rose. The next job found the same time, and wrote duplicates of all partitions."""
    before, times = sampled((0, 5), (10, 5)), {PLACES[0]: RecordTimes(5, ms(13), ms(17))}
    write(tables, before)
    before.take({PLACES[0]: end(9)}, at(20), times)
    SampleTables(tables).write_end_offsets(before.waiting, BATCH)

    book = recalled(tables)
    assert book.waiting == []
    book.take({PLACES[0]: end(high)}, at(seconds), times)
    assert recorded(book) == ([(12, at(seconds), at(17))] if high > 9 else [])
    (row,) = book.rows()
    assert (row["high_watermark"], row["sampled_at"]) == (high, at(seconds))
    assert row["changed_at"] == at(seconds if high > 9 else 17)


def test_a_deleted_history_starts_with_the_last_sample(tables: PathStore) -> None:
    before = sampled((0, 5), (20, 5))
    write(tables, before, ends=False)
    assert recorded(recalled(tables)) == [(5, at(0), None)]


def test_deleted_samples_start_again(tables: PathStore) -> None:
    before = sampled((0, 5))
    SampleTables(tables).write_end_offsets(before.waiting, BATCH)
    book = recalled(tables)
    assert book.rows() == []
    take(book, 10, end(5))
    assert recorded(book) == [(5, at(10), None)]


def test_rows_are_appended_with_all_columns(tables: PathStore) -> None:
    book = SampleBook()
    take(book, 0, end(5, start=2))
    write(tables, book)
    (row,) = read_rows(tables.open(END_OFFSETS))
    assert {name: row[name] for name in ("topic", "partition", "topic_id", "log_start_offset", "high_watermark")} == {
        **PLACES[0]._asdict(),
        "topic_id": "a",
        "log_start_offset": 2,
        "high_watermark": 5,
    }
    assert isinstance(row["sampled_at"], datetime)
    assert (row["checkpoint_id"], row["batch_id"]) == (1, -1)


def test_recorded_times_are_by_partition(tables: PathStore) -> None:
    book = SampleBook()
    book.take({PLACES[0]: end(5), PLACES[1]: end(6)}, at(0))
    book.take({PLACES[0]: end(5), PLACES[1]: end(7)}, at(10))
    write(tables, book)
    times = {place: row["sampled_at"] for place, row in read_samples(tables)[1].items()}
    assert times == {TopicPartitionKey("orders", 0): at(0), TopicPartitionKey("orders", 1): at(10)}


def test_writes_survive_other_writers_and_recreated_tables(tables: PathStore) -> None:
    book, written = SampleBook(), SampleTables(tables)
    for seconds in (0, 10):
        take(book, seconds, end(seconds))
        written.write_topic_partitions(book.rows(), BATCH)
        SampleTables(tables).write_topic_partitions([], BATCH)
    shutil.rmtree(tables.table(TOPIC_PARTITIONS))
    with pytest.raises((DeltaError, TablesError)):  # the sampler tries it again
        written.write_topic_partitions(book.rows(), BATCH)
    new_tables(Path(tables.root))
    written.write_topic_partitions(book.rows(), BATCH)
    assert read_rows(tables.open(TOPIC_PARTITIONS)) == book.rows()


def test_a_job_that_lost_its_tables_writes_no_samples(tables: PathStore) -> None:
    book, written = sampled((0, 5)), SampleTables(tables)
    written.write_topic_partitions(book.rows(), BATCH)
    for name in (TOPIC_PARTITIONS, END_OFFSETS):
        tables.open(name).commit_nothing(Transaction(load_app_id(name), BatchId(2, -1).version))
    with pytest.raises(LeaseError):
        written.write_topic_partitions([], BATCH)
    with pytest.raises(LeaseError):
        written.write_end_offsets(book.waiting, BATCH)
    assert [len(read_rows(tables.open(name))) for name in (TOPIC_PARTITIONS, END_OFFSETS)] == [1, 0]


def test_the_greatest_offset_within_each_tail(tmp_path: Path) -> None:
    offsets = {
        ("orders", 0): (7, 9, 10),
        ("orders", 1): (3,),
        ("other", 0): (5000,),
        ("behind", 0): (10,),
        ("none", 0): (-1,),
    }
    rows = [
        {"group_id": f"group-{offset}", "topic": topic, "partition": partition, "committed_offset": offset}
        for (topic, partition), each in offsets.items()
        for offset in each
    ]
    new_tables(tmp_path, {"committed_offsets": [row | {"offsets_partition": 0} for row in rows]})
    places = {TopicPartitionKey(*place): Tail(0, 10) for place in offsets}
    places[TopicPartitionKey("orders", 1)] = Tail(3, 10)  # a record is known to be there
    places[TopicPartitionKey("behind", 0)] = Tail(0, 5000)  # messages wait, whatever is at the end
    assert Positions(PathStore(str(tmp_path))).within(places) == {TopicPartitionKey("orders", 0): 9}
    assert Positions(PathStore(str(tmp_path))).within({}) == {}
