"""The verdict for a past minute is the one that `group_status` gave at the end of that minute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testkit.examples import seeds
from testkit.group_world import GroupWorld
from testkit.sampled_logs import instant
from testkit.tables import reader_of, write_tables

MINUTES = 30


@pytest.mark.parametrize("seed", seeds([5, 9], [6, 12]))
def test_the_verdict_of_a_past_minute_equals_the_verdict_then(tmp_path: Path, seed: int) -> None:
    world = GroupWorld(seed, minutes=MINUTES, abandons=True)
    changes = changes_of(tmp_path, world)
    compared = 0
    for minute in range(12, MINUTES, 3):
        then = GroupWorld(seed, minutes=MINUTES, until_minute=minute, abandons=True)
        then.rows["topic_partitions"] = [
            looked_at_last(row, world, then.now_ms) for row in then.rows["topic_partitions"]
        ]
        (folder := tmp_path / str(minute)).mkdir()
        reader = reader_of(write_tables(folder, then.rows), instant(then.now_ms))
        for row in reader.rows("group_status"):
            if row["verdict_topic"] is not None:  # verdicts about the group itself are not in the history
                known = [
                    each
                    for each in changes
                    if each["group_id"] == row["group_id"] and each["changed_at"] <= instant(then.now_ms)
                ]
                assert known[-1]["verdict"] == row["verdict"], (row, known[-1])
                compared += 1
    assert compared > 20


def looked_at_last(row: dict[str, Any], world: GroupWorld, now_ms: int) -> dict[str, Any]:
    """Adapt what is known of an end offset.

    Errors have no history, and an end that still held at the minute's end counts as sampled then.
    """
    place = {name: row[name] for name in ("topic", "topic_id", "partition")}.items()
    later = [
        each["previous_sampled_at"]
        for each in world.rows["end_offsets"]
        if place <= each.items() and each["sampled_at"] > instant(now_ms)
    ]
    newest = [each["sampled_at"] for each in world.rows["topic_partitions"] if place <= each.items()]
    has_held = row["sampled_at"] is not None and min(later or newest) >= instant(now_ms)
    return row | {"error": None, "sampled_at": instant(now_ms) if has_held else row["sampled_at"]}


def changes_of(tmp_path: Path, world: GroupWorld) -> list[dict[str, Any]]:
    (folder := tmp_path / "whole").mkdir()
    rows = reader_of(write_tables(folder, world.rows), instant(world.now_ms)).rows("status_changes")
    return sorted(rows, key=lambda row: str(row["changed_at"]))
