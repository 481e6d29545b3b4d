"""A sample of a log's end tells of an instant only as long as it may still hold: beyond that, the end is unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offsetstream.views.instant import InstantReader
from offsetstream.views.reader import ViewReader
from testkit.sampled_logs import EVERY, MINUTE, SECOND, START_MS, instant
from testkit.tables import new_tables, reader_of, write_tables

Row = dict[str, Any]
Look = tuple[int, int, int]  # seconds after the start, the log's start, its end
CELL = {"offsets_partition": 0, "log_id": 0, "group_id": "billing", "topic": "orders", "partition": 0}
PLACE = {"topic": "orders", "topic_id": None, "partition": 0}
HOUR = 3600
NEAR = "within two minutes of the end of the log"
START, END = "the start of the log, as --to-earliest", "the end of the log, as --to-latest"


def every_ten(since: int, until: int, start: int, end: int) -> list[Look]:
    """Looks of a job at work at a log that stays as it is."""
    return [(at, start, end) for at in range(since, until + 1, EVERY // SECOND)]


def tables_of(looks: list[Look], commits: list[tuple[int, int]], **group: Any) -> dict[str, list[Row]]:
    """What the job has written: a row of a change or for ten minutes, the newest look, and the commits."""
    rows, before = list[Row](), None
    for at, start, end in looks:
        look = PLACE | {"sampled_at": when(at), "log_start_offset": start, "high_watermark": end}
        look |= {"last_stable_offset": end, "previous_sampled_at": None if before is None else when(before[0])}
        if before is None or before[1:] != (start, end) or look["sampled_at"] - rows[-1]["sampled_at"] >= TEN_MINUTES:
            rows.append(look)
        before = at, start, end
    newest = {name: value for name, value in rows[-1].items() if name != "previous_sampled_at"}
    newest |= {"changed_at": newest["sampled_at"], "sampled_at": when(looks[-1][0])}
    told = [
        CELL | {"record_offset": number, "record_timestamp": when(at), "committed_offset": offset}
        | {"commit_timestamp": when(at), "commit_timestamp_ms": START_MS + at * SECOND, "topic_id": None}
        for number, (at, offset) in enumerate(commits, 1)
    ]
    its = {name: CELL[name] for name in ("offsets_partition", "group_id")}
    change = {"log_id": 0, "record_offset": 0, "record_timestamp": when(0), "group_type": "Classic", "is_removed": False}
    change |= {"state": "Empty", "protocol_type": "consumer", "generation": 3, "member_count": 0}
    return {
        "end_offsets": rows,
        "topic_partitions": [newest],
        "offset_commits": [row | {"is_tombstone": False} for row in told],
        "committed_offsets": [told[-1] | {"in_coordinator_partition": True}],
        "groups": [its | {"member_count": 0, "state": "Empty", "in_coordinator_partition": True}],
        "group_history": [its | change],
        "decoded_logs": [{"offsets_partition": 0, "log_id": 0, "decoded_from_offset": 0}],
        "offsets_partitions": [{"offsets_partition": 0, "log_id": 0, "history_complete_from": when(0)}],
    }


TEN_MINUTES = instant(10 * MINUTE) - instant(0)


def when(seconds: int) -> Any:
    return instant(START_MS + seconds * SECOND)


def now_of(folder: Path, rows: dict[str, list[Row]], seconds: int) -> ViewReader:
    return reader_of(write_tables(folder, rows), when(seconds))


def only(reader: ViewReader, view: str) -> Row:
    (row,) = reader.rows(view)
    return row


@pytest.mark.parametrize(
    ("looks", "back", "moved_to"),
    [
        # The job saw 55, was killed, and five messages came that the group read: 5 back is where the log ended then.
        ([*every_ten(0, 100, 0, 55), *every_ten(170, 200, 0, 60)], (110, 55), None),
        ([*every_ten(0, 100, 0, 55)], (110, 55), None),
        # A job at work, of a log to which somebody wrote between two looks.
        ([*every_ten(0, 100, 0, 55), *every_ten(110, 200, 0, 60)], (108, 55), None),
        ([*every_ten(0, 100, 0, 90), *every_ten(110, 200, 0, 120)], (108, 110), NEAR),
        ([*every_ten(0, 100, 0, 90), *every_ten(110, 200, 0, 120)], (108, 89), None),
        # An hour without a look, in which a hundred messages came.
        ([*every_ten(0, 100, 0, 90), *every_ten(3700, 3800, 0, 190)], (1000, 110), None),
        # Both looks agree: so it was between them.
        ([*every_ten(0, 100, 0, 90), *every_ten(3700, 3800, 0, 90)], (1000, 90), END),
        ([*every_ten(0, 100, 0, 90), *every_ten(110, 200, 0, 120)], (95, 90), END),
        ([*every_ten(0, 100, 7, 90), *every_ten(3700, 3800, 7, 190)], (1000, 7), START),
        ([*every_ten(0, 100, 7, 90), *every_ten(3700, 3800, 50, 190)], (1000, 7), None),
        ([*every_ten(0, 100, 7, 90)], (110, 7), None),  # no look after it yet
    ],
)
def test_where_a_reset_went_is_told_if_the_looks_before_and_after_agree(
    tmp_path: Path, looks: list[Look], back: tuple[int, int], moved_to: str | None
) -> None:
    rows = tables_of(looks, [(20, 40), (90, 60), back])
    found = now_of(tmp_path, rows, 4000).rows("commit_audit")
    assert {row["record_offset"]: row["moved_to"] for row in found}[3] == moved_to
