"""A log was truncated: the records that were left are in the history of both logs, and count once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from offsetstream.views.reader import ViewReader
from testkit.sampled_logs import START_MS, instant
from testkit.tables import reader_of, write_tables

Row = dict[str, Any]
GROUP, TOPIC, DELETED = "billing", "orders", 1
PREFIX, LOST, AFTERWARDS = (5, 3), 9, 8  # commits before the cut, lost by the cut, and after the cut


def at(offset: int) -> Row:
    return {"record_offset": offset, "record_timestamp": instant(START_MS + offset * 1000)}


def commit(log: Row, offset: int, committed: int | None, partition: int = 0) -> Row:
    told = {"group_id": GROUP, "topic": TOPIC, "partition": partition, "is_tombstone": committed is None}
    ms = {"commit_timestamp_ms": START_MS + offset * 1000, "commit_timestamp": at(offset)["record_timestamp"]}
    return log | at(offset) | told | {"committed_offset": committed, "value_bytes": 10} | (ms if committed else {})


def rows_of(log_id: int, last: Row) -> dict[str, list[Row]]:
    """A member joins, an offset is deleted, another one is moved back. Each log has its own last commit."""
    log = {"offsets_partition": 7, "log_id": log_id, "group_id": GROUP}
    group = {"group_type": "Classic", "state": "Stable", "generation": 1, "member_count": 1, "is_removed": False}
    member = {"member_id": "m", "client_id": "c", "change": "joined", "epoch": 1}
    commits = [commit(log, 1, 4, DELETED), commit(log, 2, None, DELETED)]
    commits += [commit(log, 3 + number, offset) for number, offset in enumerate(PREFIX)]
    return {
        "group_records": [log | at(0) | {"is_tombstone": False, "key_type": 2, "value_bytes": 100}],
        "group_history": [log | at(0) | group],
        "member_history": [log | at(0) | member],
        "offset_commits": [*commits, log | last],
        "decoded_logs": [log | {"decoded_from_offset": 0}],
    }


@pytest.fixture
def reader(tmp_path: Path) -> ViewReader:
    none: Row = {}
    old, new = (rows_of(number, commit(none, 5 + number, offset)) for number, offset in enumerate((LOST, AFTERWARDS)))
    new["offset_commits"][-1]["record_offset"] = 5
    rows = {name: [*own, *new[name]] for name, own in old.items()}
    rows["decoded_logs"] = [{k: v for k, v in row.items() if k != "group_id"} for row in rows["decoded_logs"]]
    book = {"offsets_partition": 7, "log_id": 1, "next_offset": 6, "log_start_offset": 0}
    state = {"committed_offsets": [new["offset_commits"][-1] | {"in_coordinator_partition": True}]}
    state["committed_offsets"][0].pop("is_tombstone")
    state["committed_offsets"][0].pop("value_bytes")
    rows |= state | {"offsets_partitions": [book], "cluster": [{"cluster_id": "c", "offsets_retention_ms": 60_000}]}
    return reader_of(write_tables(tmp_path, rows), instant(START_MS) + timedelta(minutes=1))


def only(reader: ViewReader, view: str, **wanted: object) -> Row:
    (row,) = [row for row in reader.rows(view) if row.items() >= wanted.items()]
    return row


def test_commits_are_counted_once(reader: ViewReader) -> None:
    told = {"commits": 5, "messages": 6 + 5, "commits_back": 1, "commits_without_progress": 0}
    assert only(reader, "commit_rate").items() >= told.items()
    assert only(reader, "commit_freshness")["commits"] == 4


def test_records_are_counted_once(reader: ViewReader) -> None:
    found = only(reader, "hot_offsets_partitions")
    assert (found["records"], found["commits"], found["value_bytes"]) == (7, 6, 160)


def test_events_before_the_cut_are_shown_once(reader: ViewReader) -> None:
    assert only(reader, "commit_audit").items() >= {"previous_offset": 5, "committed_offset": 3, "log_id": 1}.items()
    assert only(reader, "tombstone_reasons").items() >= {"last_offset": 4, "log_id": 1}.items()
    assert only(reader, "rebalances").items() >= {"epoch": 1, "joined_clients": "c", "log_id": 1}.items()
