"""Shutting out older checkpoints, without Spark. tests/spark/test_checkpoint.py tests the checkpoint's files."""

import pytest

from offsetstream.stream.lifecycle.checkpoint import LAST_WRITTEN, Checkpoint
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import all_schemas
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.transaction import BatchId, is_done


def checkpoint(number: int) -> Checkpoint:
    return Checkpoint(spark=None, root="checkpoints", checkpoint_id=number)  # type: ignore[arg-type]  # needs no Spark


def test_each_checkpoint_has_a_folder_of_its_own() -> None:
    assert checkpoint(7).location == "checkpoints/7"


@pytest.mark.parametrize("name", all_schemas())
def test_a_new_checkpoint_shuts_older_ones_out_of_every_table(tables: PathStore, name: str) -> None:
    checkpoint(3).shut_out_older(tables)
    table = tables.open(name)
    assert is_done(table, BatchId(2, 2**31))
    assert not is_done(table, BatchId(3, 0))
    assert not is_done(table, BatchId(4, 0))


def test_shutting_out_older_checkpoints_changes_no_rows(tables: PathStore) -> None:
    book = PartitionBook(tables, range(3))
    book.start_load({1: 100})
    book.finish_load(1, 10, 2, 4)
    book.write(BatchId(1, 0))
    checkpoint(2).shut_out_older(tables)
    assert PartitionBook(tables, range(3)).rows == book.rows
    assert len(read_rows(tables.open("partition_events"))) == 2


def test_an_older_job_cannot_write_the_book_after_it_was_shut_out(tables: PathStore) -> None:
    zombie = PartitionBook(tables, range(3))
    zombie.start_load({1: 100})
    checkpoint(2).shut_out_older(tables)
    zombie.finish_load(1, 10, 2, 4)
    zombie.write(BatchId(1, 5))
    assert LAST_WRITTEN == "offsets_partitions"
    assert read_rows(tables.open("offsets_partitions")) == []
    assert read_rows(tables.open("partition_events")) == []


def test_older_checkpoints_may_be_shut_out_twice(tables: PathStore) -> None:
    checkpoint(2).shut_out_older(tables)
    checkpoint(2).shut_out_older(tables)
    assert is_done(tables.open("groups"), BatchId(1, 9))
