"""Maintenance while others write and read: few files and short logs, and no reader sees a row twice or misses one."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from rich.console import Console

from offsetstream.errors import ConflictError
from offsetstream.maintenance import upkeep
from offsetstream.maintenance.maintain import Maintenance
from offsetstream.maintenance.upkeep import Upkeep
from offsetstream.progress import Progress
from offsetstream.stream.lifecycle.live import Turns
from offsetstream.tables.files import CLOSED_FILE_BYTES, SmallFiles
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.path_store.files import PathFiles
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import append_rows, read_rows
from offsetstream.tables.store import Snapshot, Store
from offsetstream.tables.transaction import BatchId, app_id
from offsetstream.tables.write import TableWriter
from testkit.simulated_job import SimulatedJob, contents, hurry
from testkit.tables import append_rows as append_any
from testkit.tables import new_tables
from testkit.waiting import today

COMMITS = "offset_commits"
COMMIT = pa.schema(list(load_schema(COMMITS).arrow)[:-3])
QUIET = Progress(Console(quiet=True))


def yesterday() -> date:
    return today() - timedelta(days=1)


def append_commits(tables: PathStore, batches: range) -> None:
    for number in batches:
        row = pa.Table.from_pylist([{"offsets_partition": 0, "record_offset": number}], schema=COMMIT)
        append_rows(tables, COMMITS, row, BatchId(1, number))


def offsets(tables: PathStore) -> list[int]:
    return sorted(row["record_offset"] for row in read_rows(tables.open(COMMITS)))


def committed(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, int], int]:
    return {(row["group_id"], row["partition"]): row["committed_offset"] for row in rows}


def files(tables: PathStore, name: str) -> int:
    return len(DeltaTable(tables.table(name)).file_uris())


@pytest.mark.long
def test_a_simulated_day_leaves_few_files_and_a_short_log(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty batches, with time and thresholds scaled down. `python -m benchmarks.day` runs the complete day."""
    monkeypatch.setattr(upkeep, "CLEAR_EVERY", 10)
    monkeypatch.setattr(upkeep, "CROWDED", {"history": 20, "state": 12})
    tables, batches = PathStore(str(tmp_path)), 30
    job = SimulatedJob(spark, tables, cells=200, commits=20)
    hurry(tables, batch_seconds=0.0, scale=10)
    for number in range(batches):
        job.batch(number)
    commits = read_rows(tables.open(COMMITS))
    assert len({(row["offsets_partition"], row["record_offset"]) for row in commits}) == len(commits) == 20 * batches
    last = {
        (row["group_id"], row["partition"]): row["committed_offset"]
        for row in sorted(commits, key=lambda r: r["batch_id"])
    }
    state = read_rows(tables.open("committed_offsets"))
    assert {(row["group_id"], row["partition"]): row["committed_offset"] for row in state} == last
    for name, now in contents(tables).items():
        # Dead files of one second and of the versions since the last check; the log since an earlier checkpoint.
        assert files(tables, name) <= 20 + 6, name
        assert now.files < 50, name
        assert now.log_files < 40, name
    assert DeltaTable(tables.table("job_lease")).version() > 30
    assert DeltaTable(tables.table(COMMITS)).transaction_version(app_id(COMMITS)) == BatchId(1, batches - 1).version


def test_a_stream_of_the_history_sees_each_row_once(
    spark: SparkSession, tables: PathStore, writer: TableWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "CROWDED", {"history": 3, "state": 3})
    seen: Counter[int] = Counter()

    def read_what_is_new() -> None:
        stream = spark.readStream.format("delta").load(tables.table(COMMITS)).writeStream
        query = stream.foreachBatch(lambda rows, _: seen.update(row.record_offset for row in rows.collect()))
        query.option("checkpointLocation", str(tmp_path / "reader")).trigger(
            availableNow=True
        ).start().awaitTermination()

    tended = Upkeep(tables)
    append_commits(tables, range(4))
    read_what_is_new()
    append_commits(tables, range(4, 6))
    tended.tend(nullcontext(), QUIET)
    assert files(tables, COMMITS) == 1
    append_commits(tables, range(6, 8))
    read_what_is_new()
    assert seen == Counter(range(8))


def compact_unless_late(tables: Store, table: Snapshot, crowd: SmallFiles) -> None:
    with suppress(ConflictError):
        tables.files(table).compact(crowd)


def test_no_batch_waits_for_a_compaction(
    tables: PathStore, writer: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "CROWDED", {"history": 3, "state": 3})
    tended = Upkeep(tables)
    tended.tend(nullcontext(), QUIET)  # sums up the ledger, once a day
    append_commits(tables, range(4))
    turns = Turns(_fail_to_wait)
    assert turns.take()  # as a batch does while it writes
    tended.tend(turns, QUIET)
    assert files(tables, COMMITS) == 1


def _fail_to_wait() -> None:
    raise AssertionError("upkeep and a batch wait for one another")


def test_a_late_compaction_doubles_no_row(spark: SparkSession, tables: PathStore, writer: TableWriter) -> None:
    """As delta-rs' OPTIMIZE does here, with a commit of its files that does not check for conflicts."""
    append_commits(tables, range(6))
    crowd = SmallFiles(today(), 6, CLOSED_FILE_BYTES, is_closed=True)
    opened = [tables.open(COMMITS) for _ in range(2)]
    threads = [threading.Thread(target=compact_unless_late, args=(tables, each, crowd)) for each in opened]
    for thread in threads:
        thread.start()
    append_commits(tables, range(6, 9))  # at the same time
    for thread in threads:
        thread.join()
    assert offsets(tables) == list(range(9))


def test_a_failed_task_is_logged_once_and_retried_later(
    tables: PathStore, writer: TableWriter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(upkeep, "CROWDED", {"history": 3, "state": 3})
    monkeypatch.setattr(upkeep, "CLEAR_EVERY", 2)
    said = (tmp_path / "said").open("w+")
    progress, tended = Progress(Console(file=said, soft_wrap=True)), Upkeep(tables)
    append_commits(tables, range(4))
    with monkeypatch.context() as patch:
        patch.setattr(PathFiles, "clear", _no_space)
        tended.tend(nullcontext(), progress)
        tended.tend(nullcontext(), progress)
    assert files(tables, COMMITS) == 1
    cleared: list[str] = []
    monkeypatch.setattr(PathFiles, "clear", lambda files: cleared.append(Path(files._where).name))
    tended.tend(nullcontext(), progress)
    tended.tend(nullcontext(), progress)
    said.seek(0)
    (warning,) = said.read().splitlines()
    assert warning.endswith(f" WARN  Cannot compact the table {COMMITS}, retrying later: no space left")
    said.close()
    assert cleared == [COMMITS]


def test_a_failed_compaction_of_a_closed_day_is_retried(
    tables: PathStore, writer: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    tended = Upkeep(tables)
    for number in range(3):
        append_any(Path(tables.root), COMMITS, [{"record_offset": number, "written_day": yesterday()}])
    with monkeypatch.context() as patch:
        patch.setattr(PathFiles, "compact", _no_space)
        tended.tend(nullcontext(), QUIET)
    assert files(tables, COMMITS) == 3
    tended.tend(nullcontext(), QUIET)
    assert files(tables, COMMITS) == 1
    append_any(Path(tables.root), COMMITS, [{"record_offset": 3, "written_day": yesterday()}])
    tended.tend(nullcontext(), QUIET)
    assert files(tables, COMMITS) == 2  # one failure is enough


def _no_space(*_: object) -> None:
    raise OSError("no space left")


def test_maintenance_without_a_job_compacts_everything(spark: SparkSession, tmp_path: Path) -> None:
    tables = new_tables(tmp_path / "tables")
    for number in range(3):
        append_any(tmp_path / "tables", COMMITS, [{"record_offset": number, "written_day": yesterday()}])
        append_any(tmp_path / "tables", "decoded_logs", [{"offsets_partition": number, "log_id": 0}])
    done = {row.table: row for row in Maintenance(tables, print).run({}, timeout=0)}
    assert (done[COMMITS].files_compacted, done["decoded_logs"].files_compacted) == (3, 3)
    assert (files(tables, COMMITS), files(tables, "decoded_logs")) == (1, 1)
    lie_there = list(Path(tables.table(COMMITS)).glob("written_day=*/*"))  # old files are kept for their readers
    assert (done[COMMITS].files_before, done[COMMITS].files_after) == (3, len(lie_there))
    assert len([path for path in lie_there if path.suffix == ".parquet"]) == 4
    assert offsets(tables) == [0, 1, 2]


def samples(tables: PathStore) -> list[int]:
    return sorted(row["high_watermark"] for row in read_rows(tables.open("end_offsets")))


def append_samples(tables: PathStore) -> None:
    """Append six samples within a minute on each of three days; today is not over."""
    for days in range(3):
        day = today() - timedelta(days=days)
        at = [datetime.combine(day, datetime.min.time(), UTC) + timedelta(seconds=10 * number) for number in range(6)]
        rows = [{"topic": "orders", "partition": 0, "high_watermark": number} for number in range(6)]
        signed = [row | {"sampled_at": when, "written_day": day} for row, when in zip(rows, at, strict=True)]
        append_any(Path(tables.root), "end_offsets", signed)


def test_the_job_thins_a_day_of_samples_at_a_time(tmp_path: Path) -> None:
    tables = new_tables(tmp_path / "tables")
    tended = Upkeep(tables)
    append_samples(tables)
    for left in (13, 8, 8):
        tended.tend(nullcontext(), QUIET)
        assert len(samples(tables)) == left
    assert samples(tables) == [0, 1, 2, 3, 4, 5, 5, 5]


def test_maintenance_thins_samples_too(tmp_path: Path) -> None:
    tables = new_tables(tmp_path / "tables")
    append_samples(tables)
    dry = {row.table: row for row in Maintenance(tables, print, dry_run=True).run({}, timeout=0)}
    assert (dry["end_offsets"].rows_thinned, len(samples(tables))) == (10, 18)
    done = {row.table: row for row in Maintenance(tables, print).run({}, timeout=0)}
    assert (done["end_offsets"].rows_thinned, len(samples(tables))) == (10, 8)
