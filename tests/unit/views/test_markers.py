"""A transaction ends with a marker: a group that has read everything stays one offset below the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offsetstream.views.reader import ViewReader
from testkit.field_rules import Limits
from testkit.sampled_logs import SECOND, instant
from testkit.tables import reader_of, write_tables
from tests.unit.views.windows import NOW_MS, Window, tables_of

END = 240
# Offset, end of the readable records (None: not read by the job), members: lag, verdict.
CELLS = {
    "one marker": (END - 1, END - 1, 1, 0, "ok"),
    "where it stands": (END, END - 1, 1, 0, "ok"),
    "markers and aborted records": (END - 30, END - 40, 1, 0, "ok"),
    "messages, and markers": (END - 50, END - 40, 1, 10, "stopped"),
    "one message": (END - 1, END, 1, 1, "stopped"),
    "one message, nobody there": (END - 1, END, 0, 1, "dead"),
    "one of what": (END - 1, None, 1, 1, "unknown"),
    "one of what, nobody there": (END - 1, None, 0, 1, "unknown"),
    "two of what": (END - 2, None, 1, 2, "stopped"),
}


def table_rows() -> dict[str, list[dict[str, Any]]]:
    """The log has not grown for an hour; the groups committed 50 minutes ago, ten times within a second."""
    looks = [(END, NOW_MS - ago * SECOND) for ago in range(3600, 0, -10)]
    windows = [
        Window(
            number,
            tuple(looks),
            tuple((offset - 9 + each, NOW_MS - 3000 * SECOND + 100 * each) for each in range(10)),
            Limits(),
            300,
            members=members,
        )
        for number, (offset, _, members, *_) in enumerate(CELLS.values())
    ]
    rows = tables_of(windows)
    readable = [readable_end for _, readable_end, *_ in CELLS.values()]
    for row in (*rows["end_offsets"], *rows["topic_partitions"]):
        row["readable_end"] = readable[row["partition"]]
    began = {"log_id": 0, "record_offset": 0, "record_timestamp": instant(NOW_MS - 3600 * SECOND), "is_removed": False}
    rows["group_history"] = [
        {name: value for name, value in row.items() if name != "in_coordinator_partition"} | began
        for row in rows["groups"]
    ]
    return rows


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> ViewReader:
    return reader_of(write_tables(tmp_path_factory.mktemp("tables"), table_rows()), instant(NOW_MS))


def found(reader: ViewReader, view: str, order: str = "partition") -> dict[str, dict[str, Any]]:
    names = list(CELLS)
    return {names[row["partition"]]: row for row in sorted(reader.rows(view), key=lambda row: str(row[order]))}


@pytest.mark.parametrize("cell", CELLS)
def test_a_marker_does_not_count_as_lag(reader: ViewReader, cell: str) -> None:
    *_, lag, verdict = CELLS[cell]
    told = found(reader, "lag")[cell]
    assert (told["log_end_offset"], told["lag"], told["lag_read_committed"]) == (END, lag, lag)
    assert (told["retention_used"] == 0) == (lag == 0)
    assert found(reader, "lag_history", "minute")[cell]["lag"] == lag
    late = found(reader, "time_lag")[cell]
    assert (late["method"] == "caught up") == (lag == 0)
    judged = found(reader, "group_status_partitions")[cell]
    assert (judged["verdict"], judged["current_lag"]) == (verdict, lag), judged["verdict_reason"]
    changes = [row for row in reader.rows("status_changes") if row["partition"] == judged["partition"]]
    last = max(changes, key=lambda row: row["changed_at"])["verdict"]
    assert last == verdict


def test_an_unknown_end_makes_the_time_lag_unknown_once(tmp_path: Path) -> None:
    """Each offset had two rows: one without a time, and one by the readable end of the last sample."""
    rows = table_rows()
    for row in rows["topic_partitions"]:
        row["error"] = "LEADER_NOT_AVAILABLE"
    shown = reader_of(write_tables(tmp_path, rows), instant(NOW_MS)).rows("time_lag")
    assert [row["method"] for row in shown] == ["no sample"] * len(CELLS)
    assert {row["time_lag_seconds"] for row in shown} == {None}


def test_the_reason_says_when_the_end_was_not_read(reader: ViewReader) -> None:
    told = found(reader, "group_status_partitions")["one of what"]["verdict_reason"]
    assert told == "at most 1 message waits, perhaps only a transaction marker: the job has not read there"
