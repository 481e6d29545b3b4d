import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from offsetstream.tables.filters import Filters
from offsetstream.tables.schema import load_schema
from testkit.tables import append_rows
from tests.unit.cli.conftest import Run

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def event(name: str, second: int, **columns: Any) -> dict[str, Any]:
    return {"event": name, "offsets_partition": 1, "event_at": NOON.replace(second=second), "log_id": 0} | columns


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    owned = {"load_state": "OWNED", "load_id": 2, "caught_up_at": NOON, "groups_count": 3, "offsets_count": 4}
    ends = {"next_offset": 90, "last_stable_offset": 100, "high_watermark": 107, "last_stable_offset_since": NOON}
    coordinator = {"coordinator_id": 5, "coordinator_epoch": 9, "coordinator_available": True}
    rows = [
        {"offsets_partition": 10, "load_state": "LOADING", "load_id": 1, "coordinator_available": False},
        {"offsets_partition": 1, "log_id": 0} | owned | ends | coordinator,
        # Batches advance after the ends were looked up.
        {"offsets_partition": 2, "log_id": 0} | owned | ends | coordinator | {"next_offset": 101},
    ]
    append_rows(tmp_path, "offsets_partitions", rows)
    job, broker = {"source": "job", "load_id": 1}, {"source": "broker", "load_id": 1}
    moved = {"coordinator_id": 5, "coordinator_epoch": 9, "previous_coordinator_id": 4, "previous_coordinator_epoch": 8}
    events = [
        event("loaded", 2, **job, records=10, groups=3, offsets=4, milliseconds=7),
        event("coordinator moved", 3, **broker, **moved),
        event("unloaded", 3, **broker, **moved, groups=3, offsets=4),
        event("load started", 2, **job),
        event("load started", 1, **job) | {"offsets_partition": 2},
    ]
    append_rows(tmp_path, "partition_events", events)
    return tmp_path


def test_as_text(run: Run, tables: Path) -> None:
    result, noon = run("partitions", tables=tables), "2026-01-01T12:00:00.000Z"
    assert (result.exit_code, result.stderr) == (0, "2 of 3 offsets partitions are loaded\n")
    assert [line.split() for line in result.stdout.splitlines()] == [
        [
            *("PARTITION", "STATE", "LOAD", "COORDINATOR", "EPOCH", "AVAILABLE", "NEXT-OFFSET", "LAST-STABLE-OFFSET"),
            *(
                "HIGH-WATERMARK",
                "WAITING",
                "BLOCKED",
                "BLOCKED-SINCE",
                "GROUPS-AT-LOAD",
                "OFFSETS-AT-LOAD",
                "CAUGHT-UP-AT",
            ),
        ],
        ["1", "OWNED", "2", "5", "9", "true", "90", "100", "107", "10", "7", noon, "3", "4", noon],
        ["2", "OWNED", "2", "5", "9", "true", "101", "100", "107", "0", "7", noon, "3", "4", noon],
        ["10", "LOADING", "1", "-", "-", "false", *["-"] * 9],
    ]


def test_json_has_every_column_of_the_table(run: Run, tables: Path) -> None:
    (row,) = json.loads(run("partitions", "--offsets-partition", "1", "--output", "json", tables=tables).stdout)
    assert set(row) == {*load_schema("offsets_partitions").column_names, "waiting_records", "blocked_records"}
    assert (row["offsets_partition"], row["log_id"], row["waiting_records"], row["blocked_records"]) == (1, 0, 10, 7)
    assert (row["caught_up_at"], row["loaded_at"]) == ("2026-01-01T12:00:00.000Z", None)


def test_missing_partition_gives_exit_code_1(run: Run, tables: Path) -> None:
    arguments = ("partitions", "--offsets-partition", "3", "--offsets-partition", "2", "--output", "csv")
    result = run(*arguments, tables=tables)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[1:] == ["Error: the tables have no offsets partition 3."]
    assert [line.split(",")[0] for line in result.stdout.splitlines()] == ["offsets_partition", "2"]


def test_one_skipped_record_is_told_as_one(run: Run, tmp_path: Path) -> None:
    filters = Filters(group_exclude="test-.+").text
    row = {"offsets_partition": 0, "load_state": "OWNED", "filters": filters, "filtered_count": 1}
    append_rows(tmp_path, "offsets_partitions", [row])
    assert "The filters skipped 1 record since the last loads: " in run("partitions", tables=tmp_path).stdout


def test_events_in_their_order(run: Run, tables: Path) -> None:
    result = run("partitions", "--events", "--output", "json", tables=tables)
    rows = json.loads(result.stdout)
    assert [(row["offsets_partition"], row["event"]) for row in rows] == [
        (2, "load started"),
        (1, "load started"),
        (1, "loaded"),
        (1, "unloaded"),
        (1, "coordinator moved"),
    ]
    assert set(rows[0]) == set(load_schema("partition_events").column_names) - {"written_day"}
    assert (rows[4]["previous_coordinator_id"], rows[4]["coordinator_id"], rows[4]["source"]) == (4, 5, "broker")
    only = run("partitions", "--events", "--offsets-partition", "2", tables=tables).stdout.splitlines()
    assert [line.split()[:4] for line in only[1:]] == [["2026-01-01T12:00:01.000Z", "2", "load", "started"]]
