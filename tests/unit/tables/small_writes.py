"""All writes of the driver, each with the expected rows: these must be the same if another writer interferes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from offsetstream.cluster.answers import TopicDescription
from offsetstream.stream.monitor.topics import TopicBook
from offsetstream.tables.lease import Lease, note_history_kept_from, request_reload, request_stop
from offsetstream.tables.matching import merge_rows
from offsetstream.tables.path_store import PathStore, snapshot
from offsetstream.tables.retention import thin_history
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import append_rows, insert_rows, overwrite_rows, read_rows
from offsetstream.tables.sql import in_partitions
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId, again_on_conflict, is_done, transaction_of
from offsetstream.tables.write import append_from_tasks
from testkit.task_rows import from_tasks

SIGNATURE = ["checkpoint_id", "batch_id", "written_day"]
_NEXT = BatchId(1, 2)
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
OLD_DAY = datetime.now(UTC).date() - timedelta(days=9)
Write = Callable[[Any], object]  # takes a Store; writes of files take a PathStore


@dataclass(frozen=True)
class SmallWrite:
    """A write to `table`: `prepare` comes first, then `run`; then `column` must have the `expected` values."""

    name: str
    table: str
    prepare: Write
    run: Write
    column: str
    expected: list[Any]

    def found(self, tables: Store) -> list[Any]:
        return sorted(row[self.column] for row in read_rows(tables.open(self.table)))


class Between:
    """Lets another writer commit once, between the moment a write opens the table and its commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: str, beat: Callable[[], object]) -> None:
        self.happened = False

        def wrapped(write: Callable[..., None]) -> Callable[..., None]:
            def beaten_once(table: DeltaTable, *arguments: Any, **how: Any) -> None:
                if not self.happened and table.table_uri.rstrip("/").endswith(path):
                    self.happened = True
                    beat()
                write(table, *arguments, **how)

            return beaten_once

        monkeypatch.setattr(snapshot, "write_deltalake", wrapped(write_deltalake))
        monkeypatch.setattr(DeltaTable, "create_write_transaction", wrapped(DeltaTable.create_write_transaction))


def _rows(table: str, rows: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=load_schema(table).arrow)


def _merge(numbers: Sequence[int], state: str, batch: BatchId, replace_where: str | None = None) -> Write:
    rows = [{"offsets_partition": number, "group_id": "g", "state": state} for number in numbers]
    return lambda tables: merge_rows(tables, "groups", _rows("groups", rows), batch, replace_where=replace_where)


def _commit(number: int, day: date) -> dict[str, Any]:
    placed = {"offsets_partition": 0, "log_id": 0, "group_id": "g", "topic": "t", "partition": 0, "written_day": day}
    return placed | {"record_offset": number, "is_tombstone": False, "checkpoint_id": 1, "batch_id": number}


def _append(number: int) -> Write:
    commit = _rows("offset_commits", [_commit(number, OLD_DAY)]).drop_columns(SIGNATURE)
    return lambda tables: append_rows(tables, "offset_commits", commit, BatchId(1, number))


def _append_old(tables: PathStore) -> None:
    for number in range(2):
        rows = _rows("offset_commits", [_commit(number, OLD_DAY)])
        tables.open("offset_commits").append([rows])


def _append_file(tables: PathStore) -> None:
    batch = BatchId(1, -1)
    rows = _rows("offset_commits", [_commit(7, OLD_DAY)]).drop_columns(SIGNATURE)
    append_from_tasks(tables, "offset_commits", from_tasks(tables, "offset_commits", [rows], batch), batch)


@again_on_conflict
def _replace_by_a_file(tables: PathStore) -> None:
    """Replace rows by those that a task wrote, as a load does."""
    table = tables.open("groups")
    if not is_done(table, _NEXT):
        rows = _rows("groups", [{"offsets_partition": number, "group_id": "g", "state": "new"} for number in (1, 2)])
        new = from_tasks(tables, "groups", [rows], _NEXT)
        table.replace_from_tasks(in_partitions([1, 2]), new, transaction_of(table, _NEXT))


def _merge_log(number: int) -> Write:
    row = {"offsets_partition": 1, "log_id": number, "decoded_from_offset": 0}
    return lambda tables: merge_rows(tables, LOGS, _rows(LOGS, [row]), BatchId(1, -1))


def _compact(name: str) -> Write:
    @again_on_conflict
    def compact(tables: PathStore) -> None:
        files = tables.files(tables.open(name))
        for crowd in files.small_files():
            files.compact(crowd)

    return compact


def _thin(tables: PathStore) -> None:
    thin_history(tables, load_schema("offset_commits"), datetime.now(UTC).date())


def _insert(numbers: Sequence[int], batch: BatchId) -> Write:
    rows = [{"offsets_partition": number, "log_id": 0, "event": "loaded", "load_id": 1} for number in numbers]
    return lambda tables: insert_rows(tables, "partition_events", rows, batch)


def _overwrite(offset: int, batch: BatchId) -> Write:
    rows = [{"offsets_partition": number, "next_offset": offset} for number in range(3)]
    return lambda tables: overwrite_rows(tables, "offsets_partitions", rows, batch)


def _topics(*names: str) -> Write:
    seen = [TopicDescription(f"{number}{TOPIC_ID[1:]}", name, 1, False) for number, name in enumerate(names)]
    return lambda tables: TopicBook(tables).observe(seen, BatchId(1, -1))


def _assign(tables: PathStore) -> None:
    for member in ("m", "n"):
        row = {"offsets_partition": 0, "group_id": "g", "member_id": member, "topic_id": f"0{TOPIC_ID[1:]}"}
        rows = _rows("member_assignments", [row | {"topic": row["topic_id"]}])
        merge_rows(tables, "member_assignments", rows, BatchId(1, -1))


def _both(*writes: Write) -> Write:
    return lambda tables: [write(tables) for write in writes]


_INSTANT = datetime(2026, 1, 2, tzinfo=UTC)
_TWO_FILES = _both(_merge([0], "old", BatchId(1, 0)), _merge([1], "old", BatchId(1, 1)))
_LEASE = _both(Lease.acquire, lambda tables: request_reload(tables, [3]))

GROUPS, COMMITS, EVENTS, LEASE = "groups", "offset_commits", "partition_events", "job_lease"
LOGS = "decoded_logs"
_LOGS = _both(_merge_log(0), _merge_log(1))
_EVENTS = _both(_insert([0], BatchId(1, 0)), _insert([1], BatchId(1, 1)))
_COMMITS = _both(_append(0), _append(1))


def _load(tables: PathStore) -> None:
    _merge([1], "new", BatchId(1, -1), in_partitions([1]))(tables)


def _ask_for_5(tables: PathStore) -> None:
    request_reload(tables, [5])


def _note(tables: PathStore) -> None:
    note_history_kept_from(tables, _INSTANT)


WRITES = [
    SmallWrite("merge", GROUPS, _TWO_FILES, _merge([1, 2], "new", _NEXT), "state", ["new", "new", "old"]),
    SmallWrite("new rows", GROUPS, _TWO_FILES, _merge([2], "new", _NEXT), "state", ["new", "old", "old"]),
    SmallWrite("load", GROUPS, _TWO_FILES, _load, "state", ["new", "old"]),
    SmallWrite("merge by a file", GROUPS, _TWO_FILES, _replace_by_a_file, "state", ["new", "new", "old"]),
    SmallWrite("compaction", LOGS, _LOGS, _compact(LOGS), "log_id", [0, 1]),
    SmallWrite("compaction of a day", COMMITS, _COMMITS, _compact(COMMITS), "record_offset", [0, 1]),
    SmallWrite("append", COMMITS, _COMMITS, _append(2), "record_offset", [0, 1, 2]),
    SmallWrite("append of files", COMMITS, _COMMITS, _append_file, "record_offset", [0, 1, 7]),
    SmallWrite("retention", COMMITS, _append_old, _thin, "record_offset", [1]),
    SmallWrite("events", EVENTS, _EVENTS, _insert([1, 2], _NEXT), "offsets_partition", [0, 1, 2]),
    SmallWrite(
        "book", "offsets_partitions", _overwrite(1, BatchId(1, 0)), _overwrite(2, _NEXT), "next_offset", [2] * 3
    ),
    SmallWrite("topics", "topics", _topics("a"), _topics("a", "b"), "topic", ["a", "b"]),
    SmallWrite("names of topics", "member_assignments", _assign, _topics("a"), "topic", ["a", "a"]),
    SmallWrite("request to stop", LEASE, _LEASE, request_stop, "lease", ["offsets"]),
    SmallWrite("request to load", LEASE, _LEASE, _ask_for_5, "reload_requested", ["3,5"]),
    SmallWrite("note of retention", LEASE, _LEASE, _note, "history_kept_from", [_INSTANT]),
]
