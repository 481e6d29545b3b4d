"""A group that is deleted and created again is another group, even if its epochs continue."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.sampled_logs import SECOND, START_MS, instant
from testkit.tables import reader_of, write_tables


@pytest.mark.parametrize("again", [1, 2], ids=["from the start", "as if it went on"])
def test_rebalances_of_both_groups_stay_separate(tmp_path: Path, again: int) -> None:
    steps = ((1, "Stable", 1, False), (1, None, 0, True), (again, "Stable", 1, False))
    history = [
        {"offsets_partition": 0, "log_id": 0, "group_id": "g", "group_type": "Consumer", "group_epoch": epoch}
        | {"state": state, "member_count": members, "is_removed": is_removed, "record_offset": number}
        | {"record_timestamp": instant(START_MS + 60 * number * SECOND)}
        for number, (epoch, state, members, is_removed) in enumerate(steps)
    ]
    reader = reader_of(write_tables(tmp_path, {"group_history": history}), instant(START_MS + 600 * SECOND))
    found = sorted(reader.rows("rebalances"), key=lambda row: row["started_at"])
    assert [(row["epoch"], row["started_at"]) for row in found] == [
        (1, instant(START_MS)),
        (again, instant(START_MS + 120 * SECOND)),
    ]
    assert {row["epochs_without_record"] for row in found} == {None}
