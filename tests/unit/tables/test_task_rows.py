"""What tasks give Spark for a table that only Spark may write."""

from datetime import date

import pyarrow as pa
import pytest

from offsetstream.tables import task_rows
from offsetstream.tables.schema import load_schema
from offsetstream.tables.task_rows import PackingWriter, TaskRows
from offsetstream.tables.transaction import BatchId

DAY = date(2026, 1, 2)


def test_rows_are_packed_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_rows, "_PACKED_BYTES", 2000)
    schema = load_schema("groups").arrow
    rows = pa.Table.from_pylist([{"offsets_partition": 1, "group_id": f"group {n}"} for n in range(200)], schema)
    writer = PackingWriter("groups", BatchId(1, -1).signature(DAY))
    packed = [pa.ipc.open_stream(each).read_all() for each in [*writer.write(rows), *writer.write(rows.slice(0, 0))]]
    assert 5 < len(packed) < 100
    assert pa.concat_tables(packed).equals(rows)
    assert TaskRows.of([writer.close()]) == TaskRows(count=200)


def test_rows_of_a_history_are_signed_and_counted() -> None:
    schema = load_schema("offset_commits").arrow
    given = [field for field in schema if field.name not in ("checkpoint_id", "batch_id", "written_day")]
    rows = [{"offsets_partition": 1, "log_id": 2, "record_offset": offset, "group_id": "g"} for offset in (5, 7)]
    writer = PackingWriter("offset_commits", BatchId(3, 4).signature(DAY))
    (packed,) = writer.write(pa.Table.from_pylist(rows, pa.schema(given)))
    found = pa.ipc.open_stream(packed).read_all()
    assert found.schema == schema
    signatures = {(row["checkpoint_id"], row["batch_id"], row["written_day"]) for row in found.to_pylist()}
    assert signatures == {(3, 4, DAY)}
    told = TaskRows.of([writer.close()])
    (entry,) = told.entries
    assert (told.count, told.files, entry.log, entry.rows, entry.last_record_offset) == (2, [], (1, 2), 2, 7)
    assert (entry.day, entry.checkpoint_id, entry.batch_id) == ("2026-01-02", 3, 4)
