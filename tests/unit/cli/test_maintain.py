"""The command where it needs no Spark, beside a job and without one; tests/spark/test_upkeep.py has the rest."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from offsetstream.maintenance.upkeep import Upkeep
from offsetstream.progress import Progress
from offsetstream.stream import controls
from offsetstream.stream.controls import Heartbeat
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.tables.lease import Lease, read_lease
from offsetstream.tables.names import JOB_LEASE
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import PROPERTY, all_schemas
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.transaction import BatchId
from testkit.tables import append_rows
from testkit.waiting import repeated, today
from tests.unit.cli.conftest import Run


def horizon() -> datetime:
    return datetime.combine(today() - timedelta(days=30), datetime.min.time(), UTC)


LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def tables(tables: PathStore) -> PathStore:
    """A commit of one cell on each of three days, two of them beyond 30 days."""
    for offset, day in enumerate((today() - timedelta(days=50), today() - timedelta(days=40), today())):
        append_rows(Path(tables.root), "offset_commits", [commit(offset, day)])
    loaded = {"load_state": "OWNED", "history_complete_from": LONG_AGO, "log_id": 0, "next_offset": 3}
    append_rows(Path(tables.root), "offsets_partitions", [{"offsets_partition": 3} | loaded])
    Lease.acquire(tables).release()
    return tables


def commit(offset: int, day: date) -> dict[str, Any]:
    cell = {"offsets_partition": 3, "group_id": "billing", "topic": "orders", "partition": 0}
    return cell | {"log_id": 0, "record_offset": offset, "is_tombstone": False, "written_day": day}


@pytest.fixture
def live_job(tables: PathStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lease]:
    """The lease of a job that runs elsewhere, as far as anybody here can see."""
    monkeypatch.setattr(controls, "BEAT_SECONDS", 0.2)
    monkeypatch.setattr(controls, "POLL_SECONDS", 0.1)
    lease = Lease.acquire(tables)
    hours_ahead = {"host": "'elsewhere'", "heartbeat_at": "now() + interval '3 hours'"}
    DeltaTable(tables.table(JOB_LEASE)).update(updates=hours_ahead)
    with Heartbeat(lease, print, print):  # fails if anybody takes it
        yield lease


def offsets(tables: PathStore) -> list[int]:
    return sorted(row["record_offset"] for row in read_rows(tables.open("offset_commits")))


def complete_from(tables: PathStore) -> datetime:
    (row,) = read_rows(tables.open("offsets_partitions"))
    found: datetime = row["history_complete_from"]
    return found


def maintain(run: Run, tables: PathStore, *options: str) -> dict[str, dict[str, Any]]:
    result = run("maintain", *options, "--output", "json", tables=Path(tables.root))
    assert result.exit_code == 0, result.output
    return {row["table"]: row for row in json.loads(result.stdout)}


def test_without_options_no_row_is_deleted(run: Run, tables: PathStore) -> None:
    done = maintain(run, tables)
    assert list(done) == list(all_schemas())
    assert {row["rows_thinned"] for row in done.values()} == {0}
    assert (offsets(tables), complete_from(tables)) == ([0, 1, 2], LONG_AGO)
    assert done["offset_commits"]["files_before"] == done["offset_commits"]["files_after"] == 3
    assert done["offset_commits"]["bytes_before"] > 1000


@pytest.mark.parametrize("keep", ["30d", "30 days", "interval 30 days"])
def test_history_beyond_the_horizon_is_thinned(run: Run, tables: PathStore, keep: str) -> None:
    would = maintain(run, tables, "--keep-history", keep, "--dry-run")
    assert (offsets(tables), complete_from(tables)) == ([0, 1, 2], LONG_AGO)
    done = maintain(run, tables, "--keep-history", keep)
    assert {table: row["rows_thinned"] for table, row in done.items() if row["rows_thinned"]} == {"offset_commits": 1}
    assert would["offset_commits"]["rows_thinned"] == 1
    assert (offsets(tables), complete_from(tables)) == ([1, 2], horizon())
    maintain(run, tables, "--keep-history", "35d")
    assert complete_from(tables) == horizon()  # what is gone does not come back


def test_unused_files_are_deleted_after_the_readers_grace_period(run: Run, tables: PathStore) -> None:
    maintain(run, tables, "--keep-history", "30d")
    table = DeltaTable(tables.table("offset_commits"))
    assert len(list(Path(tables.table("offset_commits")).glob("*/*.parquet"))) == len(table.file_uris()) + 1
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    would, done = maintain(run, tables, "--dry-run")["offset_commits"], maintain(run, tables)["offset_commits"]
    assert (would["files_before"], would["files_after"]) == (done["files_before"], done["files_after"]) == (3, 2)
    assert len(list(Path(tables.table("offset_commits")).glob("*/*.parquet"))) == 2


def test_running_job_publishes_from_when_the_history_is_complete(run: Run, tables: PathStore, live_job: Lease) -> None:
    book, other = PartitionBook(tables, [3]), PartitionBook(tables, [3])

    def job() -> None:
        book.claims.thinned_before(live_job.read().history_kept_from)
        book.write(BatchId(1, -1))  # it knows of nobody else who writes these rows

    with repeated(job, 0.05):
        done = maintain(run, tables, "--keep-history", "30d")
    assert done["offset_commits"]["rows_thinned"] == 1
    assert (offsets(tables), complete_from(tables)) == ([1, 2], horizon())
    # A job that did not hear of it while it ran hears of it when it starts.
    assert other.rows[3].history_complete_from == LONG_AGO
    row = read_lease(tables)
    assert row is not None
    other.claims.thinned_before(row.history_kept_from)
    assert other.rows[3].history_complete_from == horizon()


def test_the_job_thins_its_history_itself_once_its_book_says_so(tables: PathStore, live_job: Lease) -> None:
    book, tended = PartitionBook(tables, [3]), Upkeep(tables, keep_history=["30d"])
    tended.tend(nullcontext(), Progress())
    assert (offsets(tables), complete_from(tables)) == ([0, 1, 2], LONG_AGO)  # it has only told the book
    book.claims.thinned_before(live_job.read().history_kept_from)
    book.write(BatchId(1, -1))
    tended.tend(nullcontext(), Progress())
    assert (offsets(tables), complete_from(tables)) == ([1, 2], horizon())


def test_each_history_may_be_kept_for_another_time(run: Run, tables: PathStore) -> None:
    done = maintain(run, tables, "--keep-history", "40w", "--keep-history", "group_records=30d")
    assert {row["rows_thinned"] for row in done.values()} == {0}
    assert complete_from(tables) == horizon()  # some history is thinned before it
    done = maintain(run, tables, "--keep-history", "40w", "--keep-history", "offset_commits=30d")
    assert done["offset_commits"]["rows_thinned"] == 1


@pytest.mark.parametrize(
    ("keep", "told"),
    [
        ("groups=30d", "'groups' is none of the tables assignment_history, end_offsets, group_history"),
        ("offset_commits=", "'' is not a number of days"),
    ],
)
def test_a_history_that_cannot_be_thinned_is_refused(run: Run, tables: PathStore, keep: str, told: str) -> None:
    result = run("maintain", "--keep-history", keep, tables=Path(tables.root))
    assert (result.exit_code, told in " ".join(result.stderr.split())) == (2, True), result.stderr


def test_nothing_is_deleted_before_the_job_acknowledged(run: Run, tables: PathStore, live_job: Lease) -> None:
    result = run("maintain", "--keep-history", "30d", "--timeout", "0", tables=Path(tables.root))
    assert result.exit_code == 1
    assert "the running job did not answer within 0.0 s" in result.stderr.replace("within 0 s", "within 0.0 s")
    assert "nothing was thinned" in result.stderr
    assert (offsets(tables), complete_from(tables)) == ([0, 1, 2], LONG_AGO)


def test_small_files_of_state_are_left_to_the_running_job(run: Run, tables: PathStore, live_job: Lease) -> None:
    for number in range(3):
        append_rows(Path(tables.root), "decoded_logs", [{"offsets_partition": number, "log_id": 0}])
    done = maintain(run, tables)
    assert (done["decoded_logs"]["files_compacted"], done["decoded_logs"]["files_after"]) == (0, 3)
    assert done["decoded_logs"]["note"] == "a job runs: it compacts this table itself"


def test_the_entry_point_for_workflows_does_the_same(tables: PathStore) -> None:
    """Without spark-submit here: it asks for no session."""
    entry = Path(__file__).parents[3] / "streaming_jobs" / "maintain_tables.py"
    command = [sys.executable, str(entry), "--tables", tables.root, "--keep-history", "30d", "--output", "csv"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    (header, *lines) = csv.reader(shown.stdout.splitlines())
    thinned = {line[0]: line[header.index("rows_thinned")] for line in lines}
    assert thinned == dict.fromkeys(all_schemas(), "0") | {"offset_commits": "1"}
    assert offsets(tables) == [1, 2]


def test_text_has_a_line_for_each_table(run: Run, tables: PathStore) -> None:
    shown = run("maintain", "--dry-run", tables=Path(tables.root)).stdout.splitlines()
    assert [line.split()[0] for line in shown] == ["TABLE", *all_schemas()]


def test_it_needs_no_java(tables: PathStore) -> None:
    for number in range(2):
        append_rows(Path(tables.root), "decoded_logs", [{"offsets_partition": number, "log_id": 0}])
    command = [sys.executable, "-m", "offsetstream", "maintain", "--tables", tables.root, "--output", "json"]
    without = {name: value for name, value in os.environ.items() if name not in ("PATH", "JAVA_HOME")}
    shown = subprocess.run(command, env=without, capture_output=True, text=True, check=True)
    (logs,) = (row for row in json.loads(shown.stdout) if row["table"] == "decoded_logs")
    assert (logs["files_compacted"], logs["note"]) == (2, None)
    assert len(DeltaTable(tables.table("decoded_logs")).file_uris()) == 1


def test_dead_job_of_another_host_delays_maintenance_by_a_minute_at_most(
    run: Run, tables: PathStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offsetstream.tables.lease.LIFETIME", timedelta(seconds=0.5))
    Lease.acquire(tables)
    DeltaTable(tables.table(JOB_LEASE)).update(updates={"host": "'elsewhere'"})
    result = run("maintain", "--keep-history", "30d", tables=Path(tables.root))
    assert (result.exit_code, offsets(tables), complete_from(tables)) == (0, [1, 2], horizon())
    assert "on elsewhere is alive" in result.stderr


@pytest.mark.parametrize("keep", ["0d", "30h", "-1d", "", "month", "999999d"])
def test_invalid_duration_is_refused(run: Run, tables: PathStore, keep: str) -> None:
    result = run("maintain", "--keep-history", keep, tables=Path(tables.root))
    assert result.exit_code == 2
    assert "is not a number of days: give 30d, 4w or" in result.stderr


def test_table_with_lost_data_files_gives_an_error(run: Run, tables: PathStore) -> None:
    gone = sorted(Path(tables.table("offset_commits")).glob("*/*.parquet"))
    for file in gone:
        file.unlink()
    for options in ((), ("--keep-history", "30d"), ("--dry-run",)):
        result = run("maintain", *options, tables=Path(tables.root))
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        assert "Error: 3 data files of the table " in result.stderr
        assert (
            f"offset_commits/ are missing, the first is {gone[0].parent.name}/{gone[0].name}: restore" in result.stderr
        )


def test_tables_that_are_missing_or_of_another_version(run: Run, tables: PathStore, tmp_path: Path) -> None:
    result = run("maintain", tables=tmp_path / "elsewhere")
    assert (result.exit_code, "there is no table" in result.stderr) == (1, True)
    DeltaTable(tables.table("topics")).alter.set_table_properties({PROPERTY: "99"}, raise_if_not_exists=False)
    result = run("maintain", tables=Path(tables.root))
    assert (result.exit_code, "has schema version 99" in result.stderr) == (1, True)
