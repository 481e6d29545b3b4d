"""Compaction finds small files, and transactions survive the deletion of old log files."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from time import sleep
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from offsetstream.errors import TablesError
from offsetstream.tables.files import CLOSED_FILE_BYTES, OPEN_FILE_BYTES, SmallFiles, StoredFiles
from offsetstream.tables.lease import Lease
from offsetstream.tables.matching import merge_rows
from offsetstream.tables.names import END_OFFSETS
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import all_schemas, load_schema
from offsetstream.tables.small_tables import append_rows, read_rows
from offsetstream.tables.transaction import BatchId, app_id
from testkit.tables import append_rows as append_any
from testkit.waiting import today


def keep_nothing(tables: PathStore) -> None:
    for name in all_schemas():
        properties = dict.fromkeys(
            ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration"), "interval 0 seconds"
        )
        DeltaTable(tables.table(name)).alter.set_table_properties(properties | {"delta.checkpointInterval": "5"})


def found(tables: PathStore, name: str) -> list[SmallFiles]:
    return tables.files(tables.open(name)).small_files()


def stored(tables: PathStore, name: str, **how: Any) -> StoredFiles:
    return tables.files(tables.open(name)).stored(**how)


def test_small_files_are_counted_by_day_and_closed_days_come_last(tables: PathStore) -> None:
    def write(name: str, day: date | None, files: int) -> None:
        for number in range(files):
            row = {"offsets_partition": number, "group_id": "g"} | ({"written_day": day} if day else {})
            append_any(Path(tables.root), name, [row])

    closed = today() - timedelta(days=1)
    write("offset_commits", closed, 2)
    write("offset_commits", today() - timedelta(days=2), 1)
    write("offset_commits", today(), 3)
    for number in range(4):
        append_any(Path(tables.root), "decoded_logs", [{"offsets_partition": number, "log_id": 0}])
    assert found(tables, "offset_commits") == [
        SmallFiles(today(), 3, OPEN_FILE_BYTES, is_closed=False),
        SmallFiles(closed, 2, CLOSED_FILE_BYTES, is_closed=True),
    ]
    assert found(tables, "decoded_logs") == [SmallFiles(None, 4, CLOSED_FILE_BYTES, is_closed=True)]
    assert found(tables, "group_records") == []


def test_a_file_that_is_large_enough_is_left_alone(tables: PathStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        append_any(Path(tables.root), "decoded_logs", [{"offsets_partition": 1, "log_id": 0}])
    sizes = pa.table(DeltaTable(tables.table("decoded_logs")).get_add_actions())["size_bytes"].to_pylist()
    monkeypatch.setattr("offsetstream.tables.files.CLOSED_FILE_BYTES", 2 * max(sizes))
    assert found(tables, "decoded_logs") == []


def test_the_files_of_groups_are_left_to_merges(tables: PathStore) -> None:
    for number in range(4):
        append_any(Path(tables.root), "groups", [{"offsets_partition": number, "group_id": "g"}])
    assert found(tables, "groups") == []
    DeltaTable(tables.table("groups")).alter.add_constraint({"mine": "offsets_partition >= 0"})
    assert [crowd.files for crowd in found(tables, "groups")] == [4]  # delta-rs writes these as a whole


def test_transactions_survive_the_deletion_of_old_log_files(tables: PathStore) -> None:
    """Delta skips a batch that it already has; if the transaction were lost, the batch would be written twice."""
    keep_nothing(tables)
    commits = pa.schema(list(load_schema("offset_commits").arrow)[:-3])
    lease = Lease.acquire(tables)
    for number in range(12):
        batch = BatchId(3, number)
        commit = {"offsets_partition": 1, "record_offset": number, "group_id": "g", "topic": "t", "partition": 0}
        append_rows(tables, "offset_commits", pa.Table.from_pylist([commit], schema=commits), batch)
        state = pa.Table.from_pylist([commit | {"log_id": 0}], schema=load_schema("committed_offsets").arrow)
        merge_rows(tables, "committed_offsets", state, batch, newer_only=True)
        lease.heartbeat()
    for name in ("offset_commits", "committed_offsets", "job_lease"):
        table = DeltaTable(tables.table(name))
        table.alter.set_table_properties({"delta.checkpointInterval": "100"})  # a version without a transaction
        table.create_checkpoint()
        sleep(0.01)  # the log files must be older than the retention of 0
        tables.files(tables.open(name)).clear()
        now = stored(tables, name)
        assert (now.files, now.log_files < 12) == (len(DeltaTable(tables.table(name)).file_uris()), True)
    for name in ("offset_commits", "committed_offsets"):
        folder = Path(tables.table(name)) / "_delta_log"
        assert "txn" not in "".join(path.read_text() for path in folder.glob("*.json"))
        assert DeltaTable(tables.table(name)).transaction_version(app_id(name)) == BatchId(3, 11).version
    append_rows(tables, "offset_commits", pa.Table.from_pylist([{"record_offset": 11}], schema=commits), BatchId(3, 11))
    assert DeltaTable(tables.table("offset_commits")).count() == 12
    assert lease.read().owner == lease.owner
    lease.heartbeat()


def test_files_in_a_folder_are_counted(tables: PathStore) -> None:
    before = stored(tables, "groups")
    append_any(Path(tables.root), "groups", [{"offsets_partition": 1, "group_id": "g"}])
    now = stored(tables, "groups")
    files = [path for path in Path(tables.table("groups")).rglob("*") if path.is_file()]
    assert (now.files - before.files, now.log_files - before.log_files) == (1, 1)
    assert now.bytes == sum(path.stat().st_size for path in files)
    (data,) = (path.name for path in files if path.suffix == ".parquet")
    assert stored(tables, "groups", without={data}).files == 0


def test_checksums_of_deleted_files_are_deleted(tables: PathStore) -> None:
    """Spark writes them next to its files; no other program deletes them."""
    append_any(Path(tables.root), "groups", [{"offsets_partition": 1, "group_id": "g"}])
    folder = Path(tables.table("groups"))
    log, (data,) = folder / "_delta_log", folder.glob("*.parquet")
    kept = [folder / f".{data.name}.crc", log / f".{1:020}.json.crc", log / f"{1:020}.crc", log / f".{1:020}.crc.crc"]
    gone = [folder / ".part-0.parquet.crc", log / f".{7:020}.json.crc"]
    for path in kept + gone:
        path.write_bytes(b"crc")
    tables.files(tables.open("groups")).clear()
    assert [path.name for path in kept if not path.exists()] == []
    assert [path.name for path in gone if path.exists()] == []
    assert DeltaTable(tables.table("groups")).count() == 1


def test_checksums_of_deleted_log_files_are_deleted(tables: PathStore) -> None:
    keep_nothing(tables)
    log = Path(tables.table("groups")) / "_delta_log"
    (log / f"{0:020}.crc").write_bytes(b"{}")
    DeltaTable(tables.table("groups")).create_checkpoint()
    sleep(0.01)
    tables.files(tables.open("groups")).clear()
    assert sorted(path.name for path in log.glob("*.crc")) == []
    assert DeltaTable(tables.table("groups")).count() == 0


def test_files_that_cannot_be_listed_raise_tables_error(tables: PathStore) -> None:
    """The job maintains its tables between batches, and such an error must not end it."""
    files = tables.files(tables.open("groups"))
    shutil.rmtree(tables.table("groups"))
    for question in (files.clear, files.removable, files.stored, files.lost):
        with pytest.raises(TablesError):
            question()


def test_samples_are_found_by_time_after_compaction(tables: PathStore) -> None:
    """Delta stores ranges of times in milliseconds; the first and the last sample are between two milliseconds."""
    times = [datetime(2030, 1, 1, 1, 2, second, 345_678, UTC) for second in range(3)]
    for at in times:
        append_any(Path(tables.root), END_OFFSETS, [{"topic": "t", "sampled_at": at, "written_day": at.date()}])
    (crowd,) = found(tables, END_OFFSETS)
    tables.files(tables.open(END_OFFSETS)).compact(crowd)
    (file,) = pa.table(tables.open(END_OFFSETS).delta.get_add_actions(flatten=True)).to_pylist()
    least, most = file["min.sampled_at"], file["max.sampled_at"]
    assert (least.isoformat(), most.isoformat()) == (
        "2030-01-01T01:02:00.345000+00:00",
        "2030-01-01T01:02:02.346000+00:00",
    )
    rows = tables.open(END_OFFSETS).delta.to_pyarrow_dataset()
    for at in times:
        assert rows.count_rows(pc.field("sampled_at") == pa.scalar(at)) == 1
        where = f"sampled_at = CAST('{at.isoformat()}' AS TIMESTAMP)"
        assert [row["sampled_at"] for row in read_rows(tables.open(END_OFFSETS), where)] == [at]
