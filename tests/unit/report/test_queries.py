"""Results of the report's queries on small tables, one question each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from offsetstream.report.queries import Period, find
from offsetstream.tables.location import store_at
from testkit.tables import append_rows, create_empty_tables

UNTIL = datetime(2026, 1, 5, 12, tzinfo=UTC)
PLACE: dict[str, Any] = {"topic": "t", "partition": 0}


def before(minutes: int) -> datetime:
    return UNTIL - timedelta(minutes=minutes)


def commits(group: str, offset: int, *steps: tuple[int, int | None]) -> list[dict[str, Any]]:
    """Commits, or deletions (None), each at a number of minutes before the end."""
    own = PLACE | {"group_id": group, "offsets_partition": 1, "log_id": 0}
    return [
        own
        | {"record_offset": offset + number, "record_timestamp": before(minutes), "committed_offset": committed}
        | {"is_tombstone": committed is None}
        for number, (minutes, committed) in enumerate(steps)
    ]


def test_a_deleted_offset_has_no_lag(tmp_path: Path) -> None:
    create_empty_tables(tmp_path)
    ends = [
        PLACE | {"high_watermark": 100 if minutes > 50 else 150, "sampled_at": before(minutes)}
        for minutes in range(100, -1, -10)
    ]
    for row in ends:
        row["previous_sampled_at"] = row["sampled_at"] - timedelta(seconds=10)
    append_rows(tmp_path, "end_offsets", ends)
    steps = {
        "gone": ((90, 10), (40, None)),
        "came back": ((90, 10), (40, None), (20, 120)),
        "came back at once": ((90, 10), (40, None), (40, 120)),
        "gone before": ((900, 10), (800, None)),
    }
    for number, (group, own) in enumerate(steps.items()):
        append_rows(tmp_path, "offset_commits", commits(group, 10 * number, *own))
    found = find(store_at(str(tmp_path)), Period(before(120), UNTIL)).by_group("lag")
    # A bucket shows its greatest lag, including the lag at its start: a drop shows one bucket later.
    told = {group: [(120 - row["seconds"] // 60, row["lag"]) for row in rows] for group, rows in found.items()}
    assert told == {
        "gone": [(90, 90), (50, 140), (39, 0)],
        "came back": [(90, 90), (50, 140), (39, 0), (20, 30)],
        "came back at once": [(90, 90), (50, 140), (39, 30)],
    }
