"""Views of now give the same rows over only the samples that they need as over all; and these are few."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from offsetstream.views import reader as reading
from testkit.examples import seeds
from testkit.group_world import GroupWorld
from testkit.sampled_logs import START_MS, instant
from testkit.tables import reader_of, write_tables

VIEWS = ("time_lag", "group_status_partitions", "group_status")


@pytest.mark.parametrize("seed", seeds([0, 1], [2, 3, 4, 5]))
def test_recent_samples_give_the_same_rows(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = GroupWorld(seed)
    folder, now = write_tables(tmp_path, world.rows), instant(world.now_ms)
    found = told(folder, now)
    assert found["time_lag"]
    assert found == told(folder, now, reversed(VIEWS))  # the second reader continues with the samples of the first
    monkeypatch.setattr(reading, "RECENT_VIEWS", frozenset())
    assert found == told(folder, now)


def told(folder: Path, now: Any, views: Iterable[str] = VIEWS) -> dict[str, list[str]]:
    reader = reader_of(folder, now)
    return {view: sorted(map(str, reader.rows(view))) for view in views}


def test_another_topic_of_the_same_name_hides_no_samples(tmp_path: Path) -> None:
    """Brokers before 2.8 do not report the topic id: their samples lie between those of the topic."""
    now = instant(START_MS)
    place = {"topic": "t", "partition": 0, "log_start_offset": 0}
    ends = [
        place | {"topic_id": topic_id, "high_watermark": high, "sampled_at": now - timedelta(seconds=seconds)}
        for topic_id, high, seconds in (("a", 0, 1000), ("a", 10, 900), ("a", 20, 800), (None, 3, 700))
    ]
    newest = ends[2] | {"changed_at": ends[2]["sampled_at"], "sampled_at": now}
    cell = {"group_id": "g", "topic": "t", "partition": 0, "offsets_partition": 0, "log_id": 0, "record_offset": 0}
    cell |= {"committed_offset": 5, "in_coordinator_partition": True}
    rows = {"end_offsets": ends, "topic_partitions": [newest], "committed_offsets": [cell]}
    (row,) = reader_of(write_tables(tmp_path, rows), now).rows("time_lag")
    assert (row["method"], row["time_lag_seconds"]) == ("interpolated", 950)


def test_few_samples_of_a_long_history_are_read(tmp_path: Path) -> None:
    """For a month only one partition had unread messages: its first unread record is a day old."""
    now = instant(START_MS)
    day = timedelta(days=1)
    times = [now - 30 * day + number * timedelta(hours=1) for number in range(30 * 24 + 1)]
    ends = [
        {"topic": "t", "partition": partition, "high_watermark": number, "log_start_offset": 0}
        | {"sampled_at": at, "previous_sampled_at": at - timedelta(hours=1)}
        for partition in range(3)
        for number, at in enumerate(times)
    ]
    newest = [row | {"changed_at": row["sampled_at"]} for row in ends if row["sampled_at"] == now]
    for row in newest:
        del row["previous_sampled_at"]
    cells = [
        {"group_id": "g", "topic": "t", "partition": partition, "offsets_partition": 0, "log_id": 0}
        | {"committed_offset": committed, "record_offset": partition, "in_coordinator_partition": True}
        | {"commit_timestamp_ms": START_MS, "record_timestamp": now}
        for partition, committed in enumerate((720, 696, 720))
    ]
    commits = [
        {name: value for name, value in row.items() if name != "in_coordinator_partition"} | {"is_tombstone": False}
        for row in cells
    ]
    rows = {"end_offsets": ends, "topic_partitions": newest, "committed_offsets": cells, "offset_commits": commits}
    reader = reader_of(write_tables(tmp_path, rows), now)
    lags = {row["partition"]: row["time_lag_seconds"] for row in reader.rows("time_lag")}
    assert lags == {0: 0, 1: 86_400, 2: 0}
    reader.rows("group_status")
    for read in ("recent end_offsets by offset", "recent end_offsets"):
        partitions = reader.connection.table(f'"{read}"').select("partition").fetchall()
        assert partitions == [(1,)] * 25
