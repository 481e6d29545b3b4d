"""After a change of the partition count, every row of the state tables is placed again."""

from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from offsetstream.coordinator.partitioning import partition_for
from offsetstream.errors import LeaseError
from offsetstream.stream import state
from offsetstream.stream.lifecycle.checkpoint import Checkpoint
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.state import place_groups
from offsetstream.tables.names import STATE_TABLES
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.transaction import BatchId
from testkit.tables import append_rows, new_tables

FEW, MORE = 4, 9
GROUPS = ["", "it's", "é😀", *(f"group-{number}" for number in range(30))]
LOAD = BatchId(1, -1)


@pytest.fixture
def tables(tables: PathStore) -> PathStore:
    """Each group in its home partition and in a former one, with two rows in most tables."""
    for name in STATE_TABLES:
        rows = []
        for group in GROUPS:
            own = partition_for(group, FEW)
            for place in (own, (own + 1) % FEW):
                key = {"offsets_partition": place, "group_id": group, "in_coordinator_partition": place == own}
                rows += [key | {"record_offset": at} for at in (1, 2)]
        columns = load_schema(name).column_names
        append_rows(Path(tables.root), name, [{k: v for k, v in row.items() if k in columns} for row in rows])
    book = loaded(tables)
    book.note_placement()
    book.write(LOAD)
    return tables


def loaded(tables: PathStore) -> PartitionBook:
    """A job with a small number of partitions, all loaded."""
    book = job(tables, FEW)
    book.start_load(dict.fromkeys(range(FEW), 300))
    for number in range(FEW):
        book.finish_load(number, 1, 1, 1)
    return book


def job(tables: PathStore, partitions: int) -> PartitionBook:
    """The book of a job that starts with this number of partitions."""
    return PartitionBook(tables, range(partitions))


def are_placed(tables: PathStore, count: int) -> list[bool]:
    """Return for each table whether all of its rows are placed by the count."""
    return [all(_is_placed(row, count) for row in rows_of(tables, name)) for name in STATE_TABLES]


def _is_placed(row: dict[str, object], count: int) -> bool:
    is_own = partition_for(str(row["group_id"]), count) == row["offsets_partition"]
    return row["in_coordinator_partition"] is is_own


def rows_of(tables: PathStore, name: str) -> list[dict[str, object]]:
    return sorted(read_rows(tables.open(name)), key=str)


def test_all_rows_are_placed_by_the_new_rule_and_back(tables: PathStore) -> None:
    before = {name: rows_of(tables, name) for name in STATE_TABLES}
    assert all(are_placed(tables, FEW))
    place_groups(tables, MORE, LOAD)
    assert all(are_placed(tables, MORE))
    for name in STATE_TABLES:  # delta-rs's MERGE leaves text that this cannot filter
        assert DeltaTable(tables.table(name)).to_pyarrow_dataset().count_rows(pc.field("group_id") == "it's") > 0
    place_groups(tables, FEW, LOAD)
    assert {name: rows_of(tables, name) for name in STATE_TABLES} == before


def test_rows_that_are_placed_already_are_not_written(tables: PathStore) -> None:
    before = [DeltaTable(tables.table(name)).version() for name in STATE_TABLES]
    place_groups(tables, FEW, LOAD)
    assert [DeltaTable(tables.table(name)).version() for name in STATE_TABLES] == before


def test_an_interrupted_change_is_repeated(tables: PathStore, monkeypatch: pytest.MonkeyPatch) -> None:
    tell, told = state._write, list[str]()

    def die_at_the_third(location: PathStore, name: str, placed: state.Placed, batch: BatchId) -> None:
        if len(told) == 2:
            raise KeyboardInterrupt
        told.append(name)
        tell(location, name, placed, batch)

    assert not job(tables, FEW).must_place_again
    first = job(tables, MORE)
    assert first.must_place_again
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(state, "_write", die_at_the_third)
        place_groups(tables, MORE, LOAD)
    assert are_placed(tables, MORE).count(True) == 2

    again = job(tables, MORE)
    assert again.must_place_again  # nothing says that it was made
    place_groups(tables, MORE, LOAD)
    again.note_placement()
    again.write(LOAD)
    assert all(are_placed(tables, MORE))
    assert not job(tables, MORE).must_place_again
    assert job(tables, FEW).must_place_again  # fewer again, as of a topic that was made anew


def test_a_job_that_lost_its_lease_places_nothing(tables: PathStore) -> None:
    Checkpoint(spark=None, root="unused", checkpoint_id=2).shut_out_older(tables)  # type: ignore[arg-type]  # needs no Spark
    with pytest.raises(LeaseError):
        place_groups(tables, MORE, LOAD)
    assert all(are_placed(tables, FEW))


def test_tables_of_an_older_version_are_placed_again(tmp_path: Path) -> None:
    """Their job did not record the partition count by which it placed groups, and missed changes."""
    new = new_tables(tmp_path / "new")
    loaded(new).write(LOAD)
    assert job(new, FEW).must_place_again


def test_before_the_first_load_no_row_must_be_placed_again(tmp_path: Path) -> None:
    assert not job(new_tables(tmp_path / "new"), FEW).must_place_again
