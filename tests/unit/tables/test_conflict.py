"""The driver's writes with concurrent changes to a table: a write that loses is repeated, and no row is doubled.

Concurrent changes by Spark are in tests/spark/test_beside_maintenance.py.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from offsetstream.errors import ConflictError, LeaseError
from offsetstream.tables.lease import Lease
from offsetstream.tables.path_store import PathStore, snapshot
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import append_rows, read_rows
from offsetstream.tables.transaction import BatchId
from testkit.tables import snapshot_at
from tests.unit.tables.small_writes import WRITES, Between, SmallWrite

Beat = Callable[[str], object]


def compact(path: str) -> None:
    DeltaTable(path).optimize.compact()


def z_order(path: str) -> None:
    table = DeltaTable(path)
    table.optimize.z_order([table.schema().fields[0].name])


def compact_and_vacuum(path: str) -> None:
    compact(path)
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def restore(path: str) -> None:
    version = DeltaTable(path).version()
    z_order(path)
    DeltaTable(path).restore(version)


def rewrite(path: str) -> None:
    write_deltalake(path, DeltaTable(path).to_pyarrow_table(), mode="overwrite")


def delete_nothing_that_counts(path: str) -> None:
    DeltaTable(path).delete("1 = 2")


BEATS: list[Beat] = [compact, z_order, compact_and_vacuum, restore, rewrite, delete_nothing_that_counts]


# Each write with one concurrent change, and each concurrent change with an append and a merge.
PAIRS: list[tuple[SmallWrite, Beat]] = [(write, compact) for write in WRITES]
PAIRS += [(write, beat) for write in WRITES if write.name in {"append", "merge"} for beat in BEATS if beat != compact]


@pytest.mark.parametrize(("write", "beat"), PAIRS, ids=lambda each: getattr(each, "name", None) or each.__name__)
def test_a_write_that_loses_is_repeated(
    tables: PathStore, monkeypatch: pytest.MonkeyPatch, write: SmallWrite, beat: Beat
) -> None:
    write.prepare(tables)
    path = tables.table(write.table)
    between = Between(monkeypatch, path, lambda: beat(path))
    write.run(tables)
    assert between.happened
    assert write.found(tables) == write.expected


def test_a_lease_is_kept_and_taken_once_during_an_optimize(tables: PathStore, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tables.table("job_lease")
    lease = Lease.acquire(tables)
    for step in (lease.heartbeat, lambda: lease.use_checkpoint(3, "here"), lease.release):
        with monkeypatch.context() as patch:
            between = Between(patch, path, lambda: z_order(path))
            step()
            assert between.happened
    (row,) = read_rows(snapshot_at(path))
    assert (row["checkpoint_id"], row["owner"]) == (3, None)
    with monkeypatch.context() as patch:
        Between(patch, path, lambda: z_order(path))
        with pytest.raises(LeaseError, match="just taken"):
            Lease.acquire(tables)  # it cannot know which one was first
    Lease.acquire(tables)
    assert len(read_rows(snapshot_at(path))) == 1


@pytest.mark.parametrize("name", ["merge", "new rows", "append", "events"])
def test_rows_that_another_program_deletes_stay_deleted(
    tables: PathStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write = next(write for write in WRITES if write.name == name)
    write.prepare(tables)
    path = tables.table(write.table)
    Between(monkeypatch, path, lambda: DeltaTable(path).delete())
    write.run(tables)
    left = {"merge": ["new", "new"], "new rows": ["new"], "append": [2], "events": [1, 2]}
    assert write.found(tables) == left[name]


@pytest.mark.parametrize("batch", [BatchId(1, -1), BatchId(1, 3)], ids=["load", "batch"])
def test_a_commit_whose_answer_was_lost_is_not_repeated(
    tables: PathStore, monkeypatch: pytest.MonkeyPatch, batch: BatchId
) -> None:
    """An object store may accept a commit and lose the answer: the retry then conflicts with this commit."""
    answers = [False]

    def write_and_lose_the_answer(*arguments: Any, **options: Any) -> None:
        write_deltalake(*arguments, **options)
        if answers:
            answers.pop()
            raise CommitFailedError("Concurrent transaction failed")

    monkeypatch.setattr(snapshot, "write_deltalake", write_and_lose_the_answer)
    schema = load_schema("group_records")
    place = {"offsets_partition": 0, "log_id": 0, "record_offset": 1, "group_id": "g"}
    row = pa.Table.from_pylist([dict.fromkeys(schema.column_names) | place], schema=schema.arrow)
    row = row.drop_columns(list(batch.signature(date(2026, 1, 1))))
    written = append_rows(tables, "group_records", row, batch)
    assert not answers
    assert written is not None  # the ledger counts it
    assert len(read_rows(tables.open("group_records"))) == 1


def test_a_write_that_always_loses_raises_conflict_error(tables: PathStore, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def always_beaten(*_: Any) -> None:
        tried.append(1)
        raise ConflictError("somebody was quicker")

    monkeypatch.setattr("offsetstream.tables.matching.is_done", always_beaten)
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(ConflictError, match="somebody was quicker"):
        WRITES[0].prepare(tables)
    assert len(tried) > 1
