"""Single tables that somebody deleted, and how the next job repairs them."""

import shutil
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable

from offsetstream.errors import LeaseError
from offsetstream.stream.lifecycle.checkpoint import Checkpoint
from offsetstream.stream.partitions.book import PartitionBook, is_ledger_lost, repair_lost_tables
from offsetstream.tables.create import create_again, create_tables
from offsetstream.tables.ledger import count_uncounted, last_offsets
from offsetstream.tables.matching import merge_rows
from offsetstream.tables.names import COMMITS, COMMITTED_OFFSETS, DECODED_LOGS, DECODED_TABLES, LEDGER, OWNED, UNLOADED
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import all_schemas, load_schema
from offsetstream.tables.small_tables import insert_rows, read_rows
from offsetstream.tables.transaction import BatchId, last_checkpoint_id
from offsetstream.verify.repair import Repair, find_damage
from testkit.merge_model import source_table
from testkit.tables import append_rows, new_tables

SINCE = datetime(2026, 1, 1, tzinfo=UTC)
BATCH = BatchId(3, 4)


@pytest.fixture
def tables(tables: PathStore) -> PathStore:
    """Tables of two partitions, one with an earlier log, written by the third checkpoint."""
    fence(tables, 3)
    loaded = {"load_id": 4, "load_state": OWNED, "next_offset": 70, "history_complete_from": SINCE}
    rows = [{"offsets_partition": number, "log_id": log_id, **loaded} for number, log_id in ((0, 0), (1, 2))]
    append_rows(Path(tables.root), "offsets_partitions", rows)
    PartitionBook(tables, [0, 1]).write(BATCH)
    place = {"checkpoint_id": 3, "batch_id": 4, "written_day": SINCE.date()}
    for partition, log_id, offset in ((0, 0, 68), (1, 1, 900), (1, 2, 69)):
        record = {"offsets_partition": partition, "log_id": log_id, "record_offset": offset, **place}
        append_rows(Path(tables.root), "offset_commits", [record])
    event = {"event": "loaded", "source": "job", "coordinator_id": 1, "coordinator_epoch": 1}
    insert_rows(
        tables,
        "partition_events",
        [{**event, "offsets_partition": n, "log_id": n, "load_id": 4} for n in (0, 1)],
        BATCH,
    )
    return tables


def fence(tables: PathStore, checkpoint_id: int) -> None:
    Checkpoint(spark=None, root="unused", checkpoint_id=checkpoint_id).shut_out_older(tables)  # type: ignore[arg-type]  # needs no Spark


def delete(tables: PathStore, *names: str) -> PartitionBook:
    for name in names:
        shutil.rmtree(tables.table(name))
    create_tables(tables, "cluster-1", "new")
    return PartitionBook(tables, [0, 1])


def test_nothing_is_lost(tables: PathStore) -> None:
    book = PartitionBook(tables, [0, 1])
    before = DeltaTable(tables.table("offsets_partitions")).version()
    assert repair_lost_tables(book, tables) == set()
    assert [row.load_state for row in book.rows.values()] == [OWNED, OWNED]
    assert DeltaTable(tables.table("offsets_partitions")).version() == before


@pytest.mark.parametrize(
    "name",
    ["committed_offsets", "group_cells", "groups", "group_members", "member_assignments", "member_subscriptions"],
)
def test_without_a_state_table_all_partitions_are_loaded_again(tables: PathStore, name: str) -> None:
    book = delete(tables, name)
    assert repair_lost_tables(book, tables) == {name}
    fence(tables, 4)  # from now on the table looks like the others: the book must say it
    for rows in (book.rows, PartitionBook(tables, [0, 1]).rows):
        assert [row.load_state for row in rows.values()] == [UNLOADED, UNLOADED]
        assert [row.next_offset for row in rows.values()] == [70, 70]
        assert [row.history_complete_from for row in rows.values()] == [SINCE, SINCE]
    assert repair_lost_tables(book, tables) == set()


@pytest.mark.parametrize("name", ["offset_commits", "group_records", "undecodable_records"])
def test_without_a_history_table_the_complete_history_starts_again(tables: PathStore, name: str) -> None:
    counted = count_uncounted(tables, [COMMITS], 0, BATCH)[COMMITS]
    book = delete(tables, name)
    assert repair_lost_tables(book, tables) == {name}
    written = PartitionBook(tables, [0, 1]).rows
    assert [row.history_complete_from for row in written.values()] == [None, None]
    assert {*last_offsets(tables.open(LEDGER), "offset_commits")} == set(counted if name != COMMITS else ())
    book.start_load({0: 70, 1: 70})
    for number in (0, 1):
        book.finish_load(number, 0, 0, 0)
        assert book.rows[number].history_complete_from == book.rows[number].load_started_at


def test_without_offsets_partitions_log_and_load_ids_continue(tables: PathStore) -> None:
    book = delete(tables, "offsets_partitions")
    assert repair_lost_tables(book, tables) == {"offsets_partitions"}
    columns = ("log_id", "next_offset", "load_id", "load_state")
    for rows in (book.rows, PartitionBook(tables, [0, 1]).rows):
        assert [tuple(getattr(row, name) for name in columns) for row in rows.values()] == [
            (0, 69, 4, UNLOADED),
            (2, 70, 4, UNLOADED),
        ]


def test_a_lost_ledger_is_detected(tables: PathStore) -> None:
    assert not is_ledger_lost(tables)
    delete(tables, LEDGER)
    assert is_ledger_lost(tables)
    delete(tables, *all_schemas())
    assert not is_ledger_lost(tables)


@pytest.mark.parametrize("name", ["topics", "partition_events", "job_lease", LEDGER])
def test_a_lost_table_that_loads_do_not_fill_needs_no_load(tables: PathStore, name: str) -> None:
    book = delete(tables, name)
    assert repair_lost_tables(book, tables) == set()
    assert [row.load_state for row in book.rows.values()] == [OWNED, OWNED]


def test_without_any_table_everything_is_new(tables: PathStore) -> None:
    book = delete(tables, *all_schemas())
    assert repair_lost_tables(book, tables) == set()
    assert last_checkpoint_id(tables) == 0


def test_a_first_job_killed_while_it_shut_out_older_checkpoints_lost_nothing(tmp_path: Path) -> None:
    new = new_tables(tmp_path / "new")
    fence(new, 1)
    book = delete(new, "groups", "offsets_partitions", "topics")
    assert repair_lost_tables(book, new) == set()


def test_checkpoint_ids_continue_without_the_lease(tables: PathStore) -> None:
    delete(tables, "job_lease")
    assert last_checkpoint_id(tables) == 3


@pytest.mark.parametrize("name", [*DECODED_TABLES, DECODED_LOGS])
def test_without_a_decoded_table_all_of_them_are_derived_again(tables: PathStore, name: str) -> None:
    book = PartitionBook(tables, [0, 1])
    book.note_decoded({0: 70, 1: 70})
    book.write(BatchId(3, 5))
    place = {"offsets_partition": 0, "log_id": 0}
    for table in DECODED_TABLES:
        append_rows(Path(tables.root), table, [{**place, "record_offset": 7, "written_day": SINCE.date()}])
    append_rows(Path(tables.root), DECODED_LOGS, [{**place, "decoded_from_offset": 5}])
    book = delete(tables, name)
    assert repair_lost_tables(book, tables) == {name}
    assert {row.next_decoded_offset for row in book.rows.values()} == {None}
    assert [row.load_state for row in book.rows.values()] == [UNLOADED, UNLOADED]
    assert [row.history_complete_from for row in book.rows.values()] == [SINCE, SINCE]
    assert {table for table in (*DECODED_TABLES, DECODED_LOGS) if read_rows(tables.open(table))} == set()


def test_decoded_tables_are_not_lost_while_nothing_is_decoded(tables: PathStore) -> None:
    book = delete(tables, *DECODED_TABLES, DECODED_LOGS)
    assert repair_lost_tables(book, tables) == set()
    assert [row.load_state for row in book.rows.values()] == [OWNED, OWNED]


@pytest.mark.parametrize("repairs", [1, 2])
def test_a_job_that_stood_still_writes_nothing_into_repaired_tables(tables: PathStore, repairs: int) -> None:
    """Nobody can know whether the process of a suspended machine goes on."""
    key = {"offsets_partition": 0, "group_id": "g", "topic": "t", "partition": 0}
    rows = source_table(load_schema(COMMITTED_OFFSETS), [key | {"log_id": 0, "committed_offset": 1}])
    write = partial(merge_rows, tables, COMMITTED_OFFSETS, rows)
    write(BATCH)
    for file in Path(tables.table(COMMITTED_OFFSETS)).glob("*.parquet"):
        file.unlink()
    damage = find_damage(tables, print)
    assert damage.keys() == {COMMITTED_OFFSETS}
    for checkpoint_id in range(4, 4 + repairs):
        assert Repair(tables, damage, None, {}, partial(create_again, tables), checkpoint_id, print).run() == []

    write(BatchId(3, 5))
    with pytest.raises(LeaseError):
        write(BatchId(3, -1), replace_where="true")
    assert read_rows(tables.open(COMMITTED_OFFSETS)) == []
    books = PartitionBook(tables, [0, 1])
    with pytest.raises(LeaseError):
        books.write(BatchId(3, -1))

    assert repair_lost_tables(books, tables) == {COMMITTED_OFFSETS}
    fence(tables, 6)  # of the next job
    assert repair_lost_tables(books, tables) == set()
    write(BatchId(6, 0))
    assert [row["group_id"] for row in read_rows(tables.open(COMMITTED_OFFSETS))] == ["g"]
