"""Rows that are in a table twice, in tables that the project's own writers made."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from offsetstream.tables import rows as arrow_rows
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import overwrite_rows, read_rows
from offsetstream.tables.transaction import BatchId
from offsetstream.verify import ledger
from offsetstream.verify.difference import ROWS
from offsetstream.verify.ledger import doubled_rows

BATCH = BatchId(1, 0)
SIGNED = {"checkpoint_id", "batch_id", "written_day"}


def rows_of(table: str, *rows: dict[str, Any]) -> pa.Table:
    schema = load_schema(table)
    return pa.Table.from_pylist([dict.fromkeys(schema.column_names) | row for row in rows], schema=schema.arrow)


@pytest.fixture
def tables(tables: PathStore) -> PathStore:
    overwrite_rows(tables, "offsets_partitions", [{"offsets_partition": n, "log_id": 0} for n in range(3)], BATCH)
    commits = [{"offsets_partition": n, "log_id": 0, "group_id": "g", "topic": "t", "partition": n} for n in range(3)]
    history = [{**row, "record_offset": offset} for row in commits for offset in (4, 5, 7)]
    arrow_rows.append_rows(tables, "offset_commits", rows_of("offset_commits", *history).drop_columns([*SIGNED]), BATCH)
    last = rows_of("committed_offsets", *({**row, "record_offset": 7} for row in commits))
    arrow_rows.merge_rows(tables, "committed_offsets", last, BATCH)
    return tables


def double(tables: PathStore, name: str, where: str = "true") -> None:
    rows = pa.Table.from_pylist(read_rows(tables.open(name), where), schema=load_schema(name).arrow)
    write_deltalake(tables.table(name), rows, mode="append")


def test_each_row_is_there_once(tables: PathStore) -> None:
    assert doubled_rows(tables) == []


def test_a_repairs_entry_of_the_ledger_may_end_where_another_entry_does(tables: PathStore) -> None:
    place = {"history": "offset_commits", "offsets_partition": 0, "log_id": 0, "last_record_offset": 7, "checksum": 1}
    entries = [{**place, "rows": 3, "checkpoint_id": 1, "batch_id": 0}, {**place, "rows": -1}]
    overwrite_rows(tables, "history_ledger", entries, BATCH)
    assert doubled_rows(tables) == []
    double(tables, "history_ledger")
    assert [(each.table, each.in_tables) for each in doubled_rows(tables)] == [("history_ledger", 2)]


def test_doubled_state_rows_are_found(tables: PathStore) -> None:
    for name in ("offsets_partitions", "committed_offsets"):
        double(tables, name)
    found = [(each.table, each.column, each.in_tables, each.other) for each in doubled_rows(tables)]
    assert found == [(name, ROWS, 2, 1) for name in ("committed_offsets", "offsets_partitions") for _ in range(3)]
    place = "committed_offsets: offsets_partition 0, group_id 'g', topic 't', partition 0"
    assert str(doubled_rows(tables)[0]) == f"{place}: rows is 2 in the tables, 1 in the records"


@pytest.mark.parametrize("at_once", [1, 1000])
def test_doubled_history_records_are_found(tables: PathStore, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(ledger, "_AT_ONCE", at_once)
    double(tables, "offset_commits", "offsets_partition = 2 AND record_offset > 4")
    double(tables, "offset_commits", "offsets_partition = 0")
    assert [str(each) for each in doubled_rows(tables)] == [
        "offset_commits: offsets_partition 0, log_id 0, record_offset 4: rows is 6 in the tables, 3 in the records",
        "offset_commits: offsets_partition 2, log_id 0, record_offset 5: rows is 4 in the tables, 2 in the records",
    ]
    assert [each.group_id for each in doubled_rows(tables)] == [None, None]


def test_the_same_offset_of_another_log_is_another_record(tables: PathStore) -> None:
    record = {"offsets_partition": 0, "log_id": 1, "record_offset": 4, "record_timestamp": datetime.now(UTC)}
    arrow_rows.append_rows(
        tables, "offset_commits", rows_of("offset_commits", record).drop_columns([*SIGNED]), BatchId(1, 1)
    )
    assert doubled_rows(tables) == []
