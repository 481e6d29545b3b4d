"""No lag: offsets below zero, offsets beyond the end, and deleted messages."""

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
LOST, ALL_LOST, MINUS_ONE, MINUS_TWO, BEYOND, JUST_NOW = range(6)
# Offset, start of the log, age of the commit.
CELLS = {
    LOST: (10, 40, 300),
    ALL_LOST: (10, END, 300),
    MINUS_ONE: (-1, 40, 300),
    MINUS_TWO: (-2, 0, 300),
    BEYOND: (730, 0, 300),
    JUST_NOW: (730, 0, 3),
}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> ViewReader:
    """A sample every ten seconds, the last one five seconds ago. All offsets but one are older."""
    looks = [NOW_MS - ago * SECOND for ago in range(605, 0, -10)]
    windows = [
        Window(number, tuple((END, at) for at in looks), ((offset, NOW_MS - ago * SECOND),), Limits(), 300)
        for number, (offset, _, ago) in CELLS.items()
    ]
    rows = tables_of(windows)
    for row in (*rows["end_offsets"], *rows["topic_partitions"]):
        row["log_start_offset"] = CELLS[row["partition"]][1]
    folder: Path = tmp_path_factory.mktemp("tables")
    return reader_of(write_tables(folder, rows), instant(NOW_MS))


def found(reader: ViewReader, view: str, *columns: str) -> dict[int, tuple[Any, ...]]:
    rows = sorted(reader.rows(view), key=lambda row: str(row.get("minute")))
    return {row["partition"]: tuple(row[name] for name in columns) for row in rows}


def test_deleted_messages_are_no_lag(reader: ViewReader) -> None:
    rows = found(reader, "lag", "lag", "lag_read_committed", "messages_lost", "is_truncated")
    assert rows[LOST] == (200, 200, 30, True)
    assert rows[ALL_LOST] == (0, 0, 230, True)
    history = found(reader, "lag_history", "lag", "messages_lost")
    assert (history[LOST], history[ALL_LOST]) == ((200, 30), (0, 230))


@pytest.mark.parametrize(("cell", "told"), [(MINUS_ONE, -1), (MINUS_TWO, -2)])
def test_an_offset_below_zero_has_no_lag(reader: ViewReader, cell: int, told: int) -> None:
    why = f"no offset: {told} was committed"
    columns = ("committed_offset", "lag", "lag_read_committed", "messages_lost", "retention_used", "reason")
    assert found(reader, "lag", *columns)[cell] == (None, None, None, None, None, why)
    assert found(reader, "time_lag", "committed_offset", "time_lag_seconds", "method")[cell] == (
        None,
        None,
        "no offset",
    )
    assert found(reader, "orphan_offsets", "committed_offset", "messages_lost", "reason")[cell] == (told, None, why)
    assert cell not in found(reader, "waiting_cells")
    assert cell not in found(reader, "lag_history")
    judged = ("verdict", "verdict_reason", "current_lag", "committed_offset")
    assert found(reader, "group_status_partitions", *judged)[cell] == ("unknown", why, 0, None)
    (of_group,) = (row for row in reader.rows("group_status") if row["verdict_partition"] == cell)
    assert (of_group["total_lag"], of_group["max_lag"]) == (None, None)


def test_an_offset_beyond_the_end_differs_from_a_recreated_topic(reader: ViewReader) -> None:
    rows = found(reader, "lag", "lag", "is_beyond_end", "is_recreated")
    assert rows[BEYOND] == (0, True, False)
    assert rows[JUST_NOW] == (0, False, False)  # the log may have grown since the sample
