"""State at an instant: offsets, groups, members and assignments equal the model, replayed up to that instant."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from offsetstream.codec.batches import RecordBatch
from offsetstream.coordinator import GroupMetadataCache
from offsetstream.coordinator.group_changes import GroupRecord, GroupTimeline, changes_by_step
from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.coordinator.replay.partition import cut_log
from offsetstream.coordinator.rows import Cell
from offsetstream.tables.rows import flat_rows
from offsetstream.views.reader import ViewReader
from testkit.sampled_logs import START_MS, instant
from testkit.tables import reader_of, write_tables
from tests.conformance.case import BOTH
from tests.conformance.histories import History
from tests.conformance.pure_tables import consumed, decoded_records
from tests.conformance.state_rows import snapshot, without_empty_assignments
from tests.conformance.valid_histories import valid_histories

Row = dict[str, Any]
Rows = dict[str, list[Row]]
HISTORIES, INSTANTS = 10, 30
COMMIT_KEYS = (0, 1)


def random_logs(number: int, coordinator: Coordinator) -> list[list[RecordBatch]]:
    """Logs of valid groups; each batch was appended at a different time."""
    found: list[History] = []

    @seed(20260103)
    @settings(
        max_examples=number,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(valid_histories(coordinator))
    def collect(history: History) -> None:
        found.append(history)

    collect()
    rng = Random(20260103)
    return [_timed(rng, history.batches) for history in found]


def _timed(rng: Random, batches: Iterable[RecordBatch]) -> list[RecordBatch]:
    timed, at_ms = [], START_MS
    for batch in batches:
        at_ms += rng.randrange(1, 60_000)
        records = tuple(replace(record, timestamp_ms=at_ms) for record in batch.records)
        timed.append(replace(batch, records=records))
    return timed


def tables_of(logs: list[list[RecordBatch]]) -> Rows:
    """The job's table rows for logs, one offsets partition each, whose ends were sampled after each batch."""
    rows: Rows = defaultdict(list)
    for partition, batches in enumerate(logs):
        log = {"offsets_partition": partition, "log_id": 0}
        rows["offsets_partitions"].append(log | {"history_complete_from": instant(START_MS)})
        rows["decoded_logs"].append(log | {"decoded_from_offset": 0})
        rows["end_offsets"] += _samples(partition, batches)
        by_group: dict[str, list[GroupRecord]] = defaultdict(list)
        for row in decoded_records(consumed(batches)).to_pylist():
            place = log | {name: row[name] for name in ("record_offset", "group_id", "is_tombstone", "key_type")}
            place["record_timestamp"] = instant(row["record_timestamp_ms"])
            if row["key_type"] in COMMIT_KEYS:
                rows["offset_commits"].append(_commit(row) | {k: v for k, v in place.items() if k != "key_type"})
            else:
                rows["group_records"].append(place)
                by_group[row["group_id"]].append(_group_record(row))
        for group_id, records in by_group.items():
            _add_changes(rows, log, group_id, records)
    return rows


def _commit(row: Row) -> Row:
    names = (
        "topic",
        "partition",
        "committed_offset",
        "leader_epoch",
        "metadata",
        "commit_timestamp_ms",
        "expire_timestamp_ms",
        "topic_id",
    )
    return {name: row[name] for name in names}


def _group_record(row: Row) -> GroupRecord:
    cell = None
    if not row["is_tombstone"]:
        key, value = (json.loads(row[name])["data"] for name in ("key_json", "value_json"))
        cell = Cell(row["key_type"], key, value, row["record_offset"], row["record_timestamp_ms"])
    return GroupRecord((row["key_type"], row["key_json"]), cell, row["record_offset"], row["record_timestamp_ms"])


def _add_changes(rows: Rows, log: Row, group_id: str, records: list[GroupRecord]) -> None:
    for changes in changes_by_step(records, GroupTimeline(group_id, {})):
        told = {"group": changes.groups, "member": changes.members, "assignment": flat_rows(changes.assignments)}
        for kind, changed in told.items():
            rows[f"{kind}_history"] += [_row(row) | log | {"group_id": group_id} for row in changed]


def _row(row: Row) -> Row:
    """Convert times to timestamps."""
    timed = {name: value for name, value in row.items() if name.endswith("timestamp_ms")}
    others = {name: value for name, value in row.items() if name not in timed}
    return others | {name.removesuffix("_ms"): None if ms is None else instant(ms) for name, ms in timed.items()}


def _samples(partition: int, batches: list[RecordBatch]) -> Iterator[Row]:
    open_since: dict[int, int] = {}
    for batch in batches:
        if batch.is_control:
            open_since.pop(batch.producer_id, None)
        elif batch.is_transactional:
            open_since.setdefault(batch.producer_id, batch.base_offset)
        yield {
            "topic": "__consumer_offsets",
            "partition": partition,
            "high_watermark": batch.next_offset,
            "last_stable_offset": min([batch.next_offset, *open_since.values()]),
            "sampled_at": instant(batch.records[-1].timestamp_ms or 0) + timedelta(microseconds=1),
        }


def state_in_views(reader: ViewReader, at_ms: int) -> dict[int, dict[str, Any]]:
    """What the views have of each offsets partition."""
    views = {"groups": "group_state_at", "group_members": "members_at", "member_assignments": "assignments_at"}
    found = {name: reader.rows(view, at=instant(at_ms)) for name, view in views.items()}
    found["committed_offsets"] = reader.rows("offsets_at", at=instant(at_ms))
    assert all(row["unknown_reason"] is None for rows in found.values() for row in rows)
    by_partition: dict[int, Rows] = defaultdict(lambda: {name: [] for name in found})
    for name, rows in found.items():
        for row in rows:
            by_partition[row["offsets_partition"]][name].append(row)
    return {partition: snapshot(by_partition[partition]) for partition in range(HISTORIES)}


def replayed(log: list[RecordBatch], at_ms: int, coordinator: Coordinator) -> dict[str, Any]:
    cache = GroupMetadataCache(coordinator)
    cache.load_partition(0, list(cut_log(log, end_ms=at_ms)))
    return cache.snapshot()


@pytest.mark.parametrize("coordinator", BOTH)
def test_state_at_any_instant_equals_the_model(coordinator: Coordinator, tmp_path: Path) -> None:
    logs, rng = random_logs(HISTORIES, coordinator), Random(20260104)
    rows = tables_of(logs) | {"cluster": [{"cluster_id": "c", "group_coordinator": coordinator}]}
    reader = reader_of(write_tables(tmp_path, rows), instant(START_MS))
    last_ms = max(record.timestamp_ms or 0 for log in logs for batch in log for record in batch.records)
    compared = 0
    for at_ms in sorted(rng.randrange(START_MS, last_ms + 2) for _ in range(INSTANTS)):
        found = state_in_views(reader, at_ms)
        for partition, log in enumerate(logs):
            held = without_empty_assignments(replayed(log, at_ms, coordinator))
            assert found[partition] == held, (partition, at_ms)
            compared += len(held["offsets"]) + len(held["groups"])
    assert compared > 500


def test_before_the_history_nothing_is_known(tmp_path: Path) -> None:
    logs = random_logs(5, "new")
    rows = tables_of(logs)
    rows["offsets_partitions"][2]["history_complete_from"] = instant(START_MS + 3_600_000)
    rows["decoded_logs"][3]["decoded_from_offset"] = 7
    reader = reader_of(write_tables(tmp_path, rows), instant(START_MS))
    at = instant(START_MS + 3_000_000)
    for view, unknown in (
        ("offsets_at", {2}),
        ("group_state_at", {2, 3}),
        ("members_at", {2, 3}),
        ("assignments_at", {2, 3}),
    ):
        found = reader.rows(view, at=at)
        assert {row["offsets_partition"] for row in found if row["unknown_reason"]} == unknown, view
        told = [row for row in found if row["offsets_partition"] in unknown]
        assert all(row["unknown_reason"] and row["record_offset"] is None for row in told), view
        groups = {row["group_id"] for row in rows["group_records"] if row["offsets_partition"] == 2}
        assert view == "offsets_at" or groups <= {row["group_id"] for row in told if row["offsets_partition"] == 2}


def test_an_open_transaction_blocks_later_records_of_all_groups(tmp_path: Path) -> None:
    """The tables have only what read_committed consumers get. The coordinator had already applied it."""
    log, at_ms = {"offsets_partition": 0, "log_id": 0}, START_MS
    commit = log | {"topic": "orders", "partition": 0, "is_tombstone": False}
    commits = [
        commit | {"group_id": group, "record_offset": offset, "committed_offset": 7, "record_timestamp": instant(at_ms)}
        for group, offset in (("before", 4), ("transactional", 5), ("other", 6))
    ]
    ends = {"topic": "__consumer_offsets", "partition": 0, "high_watermark": 8}
    rows: Rows = {
        "offsets_partitions": [log | {"history_complete_from": instant(at_ms - 1)}],
        "decoded_logs": [log | {"decoded_from_offset": 0}],
        "offset_commits": commits,
        "end_offsets": [
            ends | {"last_stable_offset": stable, "sampled_at": instant(at_ms + after)}
            for stable, after in ((5, 10), (8, 20))
        ],
    }
    reader = reader_of(write_tables(tmp_path, rows), instant(at_ms))
    for after, groups in ((15, {"before"}), (25, {"before", "transactional", "other"})):
        for view in ("offsets_at", "group_state_at"):
            assert {row["group_id"] for row in reader.rows(view, at=instant(at_ms + after))} == groups, (view, after)
