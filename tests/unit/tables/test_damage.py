"""Lost and damaged files of a table are found and named, and what is readable stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from offsetstream.errors import DamagedTableError
from offsetstream.tables.create import require_whole_logs
from offsetstream.tables.ledger import write_entries
from offsetstream.tables.location import damage_in
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.names import COMMITS
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import append_rows
from offsetstream.tables.tally import Tally
from offsetstream.tables.transaction import BatchId
from offsetstream.verify.ledger import ledger_differences
from testkit.damage import OF_FILES, OF_LOG, cut_checkpoint, data_files, empty_last_entry, lose_entries

SCHEMA = load_schema(COMMITS)
ROWS = 300  # of each commit
COMMITS_MADE = 4
LOST_LOG = (lose_entries,)


@pytest.fixture
def history(tables: PathStore) -> Path:
    """The table of commits, with four commits that its ledger counted."""
    for number in range(COMMITS_MADE):
        write(tables, number)
    return Path(tables.table(COMMITS))


def write(tables: PathStore, number: int) -> None:
    place = {"offsets_partition": 0, "log_id": 0, "topic": "t", "partition": 0, "is_tombstone": False}
    rows = [
        dict.fromkeys(SCHEMA.column_names) | place | {"record_offset": at, "group_id": f"group {at}"}
        for at in range(number * ROWS, (number + 1) * ROWS)
    ]
    batch, tally = BatchId(1, number), Tally(COMMITS)
    unsigned = pa.Table.from_pylist(rows, schema=SCHEMA.arrow).drop_columns(
        ["checkpoint_id", "batch_id", "written_day"]
    )
    written = append_rows(tables, COMMITS, unsigned, batch)
    assert written is not None
    tally.add(written)
    write_entries(tables, {COMMITS: tally.entries}, batch)


def count(tables: PathStore) -> int:
    return sum(part.num_rows for part in tables.open(COMMITS).rows())


def rows_of(tables: PathStore) -> pa.Table:
    return tables.open(COMMITS).query("SELECT * FROM rows ORDER BY record_offset").read_all()


def test_a_whole_table_is_not_damaged(tables: PathStore, history: Path) -> None:
    assert tables.folder(COMMITS).damage() == []
    DeltaTable(str(history)).create_checkpoint()
    assert tables.folder(COMMITS).damage() == []
    require_whole_logs(tables)
    assert damage_in(ValueError(f"cannot read {data_files(history)[0]}")) is None


@pytest.mark.parametrize("damaging", [*OF_FILES, *OF_LOG])
def test_a_reader_names_table_file_and_command(
    tables: PathStore, history: Path, damaging: Callable[[Path], None]
) -> None:
    damaging(history)
    (damage, *_) = tables.folder(COMMITS).damage()
    if damaging is empty_last_entry:  # readers take it for a commit without changes: the job looks for it
        with pytest.raises(DamagedTableError, match="is empty"):
            require_whole_logs(tables)
        return
    wanted = f"the table {history} is damaged: {damage}. See what is lost with 'offsetstream repair --tables "
    with pytest.raises(DamagedTableError) as looked_up:
        Lookup(tables).rows(COMMITS, SCHEMA.column_names)
    assert str(looked_up.value).startswith(wanted)
    for read in (count, rows_of):
        with pytest.raises(DamagedTableError) as found:
            read(tables)
        assert str(found.value).startswith(wanted)


def test_a_sentence_that_names_a_file_twice_is_no_path(history: Path) -> None:
    (file, *_) = data_files(history)
    said = f"cannot read the table {history}: Unable to open file {file}: Permission denied"
    assert damage_in(ValueError(said)) is None
    file.unlink()
    assert str(damage_in(ValueError(said))).startswith(f"the table {history} is damaged: ")


@pytest.mark.parametrize("damaging", [*OF_FILES, *OF_LOG])
def test_mended_table_has_the_readable_rows(tables: PathStore, history: Path, damaging: Callable[[Path], None]) -> None:
    damaging(history)
    assert tables.folder(COMMITS).mend() is (damaging not in LOST_LOG)
    if damaging in LOST_LOG:
        tables.folder(COMMITS).set_aside()
        assert tables.opened(COMMITS) is None
        found = pa.concat_tables(tables.folder(COMMITS).salvaged(SCHEMA))
        assert sorted(found["record_offset"].to_pylist()) == list(range(COMMITS_MADE * ROWS))
        assert None not in found["written_day"].to_pylist()
        return
    assert tables.folder(COMMITS).damage() == []
    lost = 0 if damaging is cut_checkpoint else ROWS
    assert count(tables) == COMMITS_MADE * ROWS - lost
    write(tables, COMMITS_MADE)
    assert count(tables) == (COMMITS_MADE + 1) * ROWS - lost


def test_salvaged_rows_are_there_once(tables: PathStore, history: Path) -> None:
    """A compaction leaves the files that it merged, until VACUUM removes them."""
    before = len(data_files(history))
    DeltaTable(str(history)).optimize.compact()
    assert len(data_files(history)) < before == len(list(history.glob("*/*.parquet"))) - 1
    lose_entries(history)
    tables.folder(COMMITS).set_aside()
    assert sum(part.num_rows for part in tables.folder(COMMITS).salvaged(SCHEMA)) == COMMITS_MADE * ROWS


def test_a_flipped_bit_is_noticed_by_the_reader_or_by_the_ledger(tables: PathStore, history: Path) -> None:
    """Parquet's pages have no checksums. So a reader may return a wrong value; the history's ledger then differs."""
    (file, *_) = data_files(history)
    whole, before = file.read_bytes(), rows_of(tables)
    by_reader, by_ledger = 0, 0
    for at in range(4, len(whole) - 8, 211):
        flipped = bytearray(whole)
        flipped[at] ^= 0x10
        file.write_bytes(flipped)
        if tables.folder(COMMITS).damage():
            by_reader += 1
            continue
        if not rows_of(tables).equals(before):
            by_ledger += 1
            assert ledger_differences(tables, checksums=True), at
    assert by_reader > 0
    assert by_ledger > 0
