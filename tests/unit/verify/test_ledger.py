"""The history ledger stays right through crashes, repeats, summing up and retention, and shows what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from offsetstream.tables import ledger
from offsetstream.tables.ledger import (
    apply_notes,
    count_uncounted,
    delete_entries,
    last_offsets,
    note_thinned,
    sum_up_days,
    write_entries,
)
from offsetstream.tables.matching import merge_rows
from offsetstream.tables.names import COMMITS, LEDGER, RECORD_TABLES
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.path_store.snapshot import PathSnapshot
from offsetstream.tables.retention import thin_history
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import append_rows, overwrite_rows, read_rows
from offsetstream.tables.store import Snapshot
from offsetstream.tables.tally import Tally
from offsetstream.tables.transaction import BatchId
from offsetstream.verify import ledger as verify_ledger
from offsetstream.verify.difference import ROWS
from offsetstream.verify.ledger import doubled_rows, ledger_differences
from testkit.examples import seeds
from testkit.waiting import today

SCHEMA = load_schema(COMMITS)
SIGNED = ["checkpoint_id", "batch_id", "written_day"]
OPEN = BatchId(9, -1)
BATCH = BatchId(1, 0)


def ago(days: int) -> date:
    return today() - timedelta(days)


def commits(partition: int, offsets: Iterable[int], log_id: int = 0) -> pa.Table:
    place = {"offsets_partition": partition, "log_id": log_id, "topic": "t", "partition": 0, "is_tombstone": False}
    rows = [
        dict.fromkeys(SCHEMA.column_names) | place | {"record_offset": at, "group_id": f"g{at % 3}"} for at in offsets
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA.arrow)


def append(tables: PathStore, rows: pa.Table, batch: BatchId) -> Tally:
    tally, written = Tally(COMMITS), append_rows(tables, COMMITS, rows.drop_columns(SIGNED), batch)
    if written is not None:
        tally.add(written)
    return tally


def apply(tables: PathStore, rows: pa.Table, batch: BatchId) -> None:
    write_entries(tables, {COMMITS: append(tables, rows, batch).entries}, batch)


def append_of_days(tables: PathStore, by_day: dict[int, range]) -> None:
    """Append and count rows that were written some days ago."""
    for days, offsets in sorted(by_day.items(), reverse=True):
        rows = commits(0, offsets).set_column(
            SCHEMA.column_names.index("written_day"), "written_day", pa.array([ago(days)] * len(offsets))
        )
        numbered = rows.set_column(
            SCHEMA.column_names.index("batch_id"), "batch_id", pa.array([100 - days] * len(offsets))
        )
        write_deltalake(tables.table(COMMITS), numbered, mode="append")
    count_uncounted(tables, RECORD_TABLES, 0, OPEN)


def differences(tables: PathStore) -> list[str]:
    counted = [str(each) for each in ledger_differences(tables, checksums=False)]
    found = [str(each) for each in ledger_differences(tables, checksums=True)]
    assert {each for each in found if "checksum" not in each} == {each for each in counted if "checksum" not in each}
    assert [each for each in doubled_rows(tables) if each.table == LEDGER] == []
    return found


def lost_rows(tables: PathStore) -> list[int]:
    found = (re.search(r"rows is (\d+) in the tables, (\d+) in the ledger", each) for each in differences(tables))
    return [int(each[2]) - int(each[1]) for each in found if each]


def entries(tables: PathStore) -> list[dict[str, Any]]:
    return read_rows(tables.open(LEDGER))


def test_counted_rows_match_the_history(tables: PathStore) -> None:
    for number in range(3):
        rows = pa.concat_tables([commits(0, range(10 * number, 10 * number + 5)), commits(1, [number], log_id=2)])
        apply(tables, rows, BatchId(1, number))
        apply(tables, rows, BatchId(1, number))  # the same batch again
    assert differences(tables) == []
    assert sum(row["rows"] for row in entries(tables)) == 18
    assert last_offsets(tables.open(LEDGER), COMMITS) == {(0, 0): 24, (1, 2): 2}
    append(tables, commits(0, [40]), BatchId(1, 3))  # a job is still writing: not counted yet
    assert differences(tables) == []


def double(tables: PathStore, name: str, where: str = "true") -> None:
    rows = pa.Table.from_pylist(read_rows(tables.open(name), where), schema=load_schema(name).arrow)
    write_deltalake(tables.table(name), rows, mode="append")


def test_missing_doubled_or_changed_rows_are_named(tables: PathStore) -> None:
    for number in range(3):
        apply(tables, commits(4, range(10 * number, 10 * number + 5)), BatchId(1, number))
    table = DeltaTable(tables.table(COMMITS))
    table.delete("record_offset IN (11, 13)")
    table.update({"committed_offset": "7"}, predicate="record_offset = 21")
    place = f"offset_commits: offsets_partition 4, log_id 0, written_day '{ago(0)}', checkpoint_id 1"
    first, second = differences(tables)
    assert first == f"{place}, batch_id 1: rows is 3 in the tables, 5 in the ledger"
    assert second.startswith(f"{place}, batch_id 2: checksum is ")
    double(tables, COMMITS, "batch_id = 0")
    assert f"{place}, batch_id 0: rows is 10 in the tables, 5 in the ledger" in differences(tables)
    table.delete("batch_id = 2")
    assert f"{place}, batch_id 2: rows is 0 in the tables, 5 in the ledger" in differences(tables)


def test_the_next_job_counts_uncounted_rows_and_lost_rows_stay_lost(tables: PathStore) -> None:
    apply(tables, commits(0, range(5)), BatchId(1, 0))
    append(tables, commits(0, range(5, 9)), BatchId(1, 1))  # then the job died
    DeltaTable(tables.table(COMMITS)).delete("record_offset = 2")
    for _ in range(2):
        count_uncounted(tables, RECORD_TABLES, 5, OPEN)
        assert [each.rpartition("batch_id ")[2] for each in differences(tables)] == [
            "0: rows is 4 in the tables, 5 in the ledger"
        ]
    # The same batch again, with more rows: existing rows are not counted twice.
    apply(tables, commits(0, range(5, 9)), BatchId(1, 1))
    apply(tables, commits(1, [3]), BatchId(1, 2))
    assert len(differences(tables)) == 1


def test_a_history_older_than_the_ledger_is_counted_as_found(tables: PathStore) -> None:
    append(tables, pa.concat_tables([commits(0, range(5)), commits(1, range(100, 103))]), BatchId(3, 7))
    count_uncounted(tables, RECORD_TABLES, 1000, OPEN)
    assert differences(tables) == []
    DeltaTable(tables.table(COMMITS)).delete("record_offset = 101")
    assert len(differences(tables)) == 1


def test_a_deleted_history_is_forgotten(tables: PathStore) -> None:
    apply(tables, commits(0, range(5)), BatchId(1, 0))
    DeltaTable(tables.table(COMMITS)).delete()
    delete_entries(tables, {COMMITS})
    assert (entries(tables), differences(tables)) == ([], [])
    apply(tables, commits(0, range(2)), BatchId(1, 1))
    assert differences(tables) == []


def test_past_days_are_summed_up(tables: PathStore) -> None:
    append_of_days(tables, {2: range(6), 1: range(6, 8)})
    for number in range(3):
        apply(tables, commits(0, [20 + number]), BatchId(1, number))
    sum_up_days(tables, ago(0))
    assert differences(tables) == []
    counted = {(row["written_day"], row["batch_id"]): row["rows"] for row in entries(tables)}
    assert counted == {(ago(2), None): 6, (ago(1), None): 2, (ago(0), 0): 1, (ago(0), 1): 1, (ago(0), 2): 1}
    DeltaTable(tables.table(COMMITS)).delete("record_offset = 3")
    (found,) = differences(tables)
    assert "batch_id" not in found
    assert found.endswith(": rows is 5 in the tables, 6 in the ledger")


class Interruption:
    """Do something when retention is about to delete the rows of its n-th day."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, day: int, happen: Callable[[], object]) -> None:
        self.left, whole = day, PathSnapshot.replace

        def interrupted(table: PathSnapshot, *arguments: Any) -> None:
            self.left -= table.name == COMMITS
            if not self.left and table.name == COMMITS:
                happen()
            whole(table, *arguments)

        monkeypatch.setattr(PathSnapshot, "replace", interrupted)


def die() -> None:
    raise KeyboardInterrupt


DAYS = {5: range(12), 4: range(12, 20), 3: range(20, 29), 0: range(29, 32)}


@pytest.mark.parametrize(
    ("is_wrong", "day", "next_horizon"),
    seeds(
        [(False, 1, 0), (True, 2, 2), (False, 1, 3), (True, 2, 4)],
        [(True, 2, 0), (False, 1, 2), (True, 2, 3), (False, 1, 4)],
    ),
)
def test_a_killed_retention_is_forgotten_or_finished_by_the_next(
    tables: PathStore, monkeypatch: pytest.MonkeyPatch, is_wrong: bool, day: int, next_horizon: int
) -> None:
    append_of_days(tables, DAYS)
    if is_wrong:
        DeltaTable(tables.table(COMMITS)).delete(f"record_offset = {7 if day == 1 else 15}")  # deleted anyway
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        Interruption(patch, day, die)
        thin_history(tables, SCHEMA, ago(3))
    assert lost_rows(tables) == [1] * is_wrong
    sum_up_days(tables, ago(0))  # by the job
    apply(tables, commits(0, [40]), BatchId(11, 0))  # the previous end of the log is outdated
    thin_history(tables, SCHEMA, ago(next_horizon))
    assert lost_rows(tables) == [1] * is_wrong
    assert [row for row in entries(tables) if row["batch_id"] is not None and row["batch_id"] < -1] == []


@pytest.mark.parametrize(
    ("day", "other_horizon"), seeds([(1, 0), (2, 2), (1, 3), (2, 4)], [(2, 0), (1, 2), (2, 3), (1, 4)])
)
def test_concurrent_retentions_each_count_what_they_deleted(
    tables: PathStore, monkeypatch: pytest.MonkeyPatch, day: int, other_horizon: int
) -> None:
    append_of_days(tables, DAYS)
    Interruption(monkeypatch, day, lambda: thin_history(tables, SCHEMA, ago(other_horizon)))
    thin_history(tables, SCHEMA, ago(3))
    assert differences(tables) == []
    places = [row["record_offset"] for row in read_rows(tables.open(COMMITS))]
    assert len(set(places)) == len(places) < 32


def test_the_note_of_a_paused_retention_is_not_mistaken_for_anothers(
    tables: PathStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its note and its deletion, another retention cleans up behind it, and goes no further."""
    append_of_days(tables, DAYS)
    Interruption(monkeypatch, 1, lambda: apply_notes(tables))
    thin_history(tables, SCHEMA, ago(0))
    assert differences(tables) == []


def test_doubled_rows_count_once_when_retention_deletes_them(tables: PathStore) -> None:
    append_of_days(tables, DAYS)
    double(tables, COMMITS, "record_offset < 15")
    assert len(differences(tables)) == 2
    thin_history(tables, SCHEMA, ago(0))
    assert differences(tables) == []


def test_retention_leaves_uncounted_rows_to_the_job(tables: PathStore) -> None:
    """A job died yesterday. Retention runs before the next job."""
    append_of_days(tables, {5: range(3)})
    late = commits(0, range(3, 9))
    write_deltalake(
        tables.table(COMMITS),
        late.set_column(SCHEMA.column_names.index("written_day"), "written_day", pa.array([ago(5)] * 6)),
        mode="append",
    )
    thin_history(tables, SCHEMA, ago(0))
    assert differences(tables) == []
    count_uncounted(tables, RECORD_TABLES, 3, OPEN)
    assert differences(tables) == []


def test_a_concurrent_write_makes_summing_up_start_again(tables: PathStore, monkeypatch: pytest.MonkeyPatch) -> None:
    append_of_days(tables, {1: range(6)})
    whole, beaten = ledger._entries_of_day, list[object]()

    def beaten_once(table: Snapshot, day: str) -> Any:
        found = whole(table, day)
        if not beaten:
            beaten.append(day)
            append_of_days(tables, {1: range(6, 9)})
        return found

    monkeypatch.setattr("offsetstream.tables.ledger._entries_of_day", beaten_once)
    sum_up_days(tables, ago(0))
    assert differences(tables) == []
    assert [row["rows"] for row in entries(tables)] == [9]


def test_without_a_ledger_there_is_nothing_to_correct(tables: PathStore) -> None:
    note_thinned(tables, tables.open(COMMITS), str(date(2030, 1, 1)), commits(0, range(3)))
    assert entries(tables) == []


def rows_of(table: str, *rows: dict[str, Any]) -> pa.Table:
    schema = load_schema(table)
    return pa.Table.from_pylist([dict.fromkeys(schema.column_names) | row for row in rows], schema=schema.arrow)


@pytest.fixture
def written(tables: PathStore) -> PathStore:
    overwrite_rows(tables, "offsets_partitions", [{"offsets_partition": n, "log_id": 0} for n in range(3)], BATCH)
    commits = [{"offsets_partition": n, "log_id": 0, "group_id": "g", "topic": "t", "partition": n} for n in range(3)]
    history = [{**row, "record_offset": offset} for row in commits for offset in (4, 5, 7)]
    append_rows(tables, "offset_commits", rows_of("offset_commits", *history).drop_columns(SIGNED), BATCH)
    last = rows_of("committed_offsets", *({**row, "record_offset": 7} for row in commits))
    merge_rows(tables, "committed_offsets", last, BATCH)
    return tables


def test_each_row_is_there_once(written: PathStore) -> None:
    assert doubled_rows(written) == []


def test_a_repairs_entry_of_the_ledger_may_end_where_another_entry_does(written: PathStore) -> None:
    place = {"history": "offset_commits", "offsets_partition": 0, "log_id": 0, "last_record_offset": 7, "checksum": 1}
    entries = [{**place, "rows": 3, "checkpoint_id": 1, "batch_id": 0}, {**place, "rows": -1}]
    overwrite_rows(written, "history_ledger", entries, BATCH)
    assert doubled_rows(written) == []
    double(written, "history_ledger")
    assert [(each.table, each.in_tables) for each in doubled_rows(written)] == [("history_ledger", 2)]


def test_doubled_state_rows_are_found(written: PathStore) -> None:
    for name in ("offsets_partitions", "committed_offsets"):
        double(written, name)
    found = [(each.table, each.column, each.in_tables, each.other) for each in doubled_rows(written)]
    assert found == [(name, ROWS, 2, 1) for name in ("committed_offsets", "offsets_partitions") for _ in range(3)]
    place = "committed_offsets: offsets_partition 0, group_id 'g', topic 't', partition 0"
    assert str(doubled_rows(written)[0]) == f"{place}: rows is 2 in the tables, 1 in the records"


@pytest.mark.parametrize("at_once", [1, 1000])
def test_doubled_history_records_are_found(written: PathStore, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(verify_ledger, "_AT_ONCE", at_once)
    double(written, "offset_commits", "offsets_partition = 2 AND record_offset > 4")
    double(written, "offset_commits", "offsets_partition = 0")
    assert [str(each) for each in doubled_rows(written)] == [
        "offset_commits: offsets_partition 0, log_id 0, record_offset 4: rows is 6 in the tables, 3 in the records",
        "offset_commits: offsets_partition 2, log_id 0, record_offset 5: rows is 4 in the tables, 2 in the records",
    ]
    assert [each.group_id for each in doubled_rows(written)] == [None, None]


def test_the_same_offset_of_another_log_is_another_record(written: PathStore) -> None:
    record = {"offsets_partition": 0, "log_id": 1, "record_offset": 4, "record_timestamp": datetime.now(UTC)}
    append_rows(written, "offset_commits", rows_of("offset_commits", record).drop_columns(SIGNED), BatchId(1, 1))
    assert doubled_rows(written) == []
