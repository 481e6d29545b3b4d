"""The views over Delta tables, as Python programs and commands query them.

Views of now give the same rows over only the samples that they need as over all; and these are few.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake

import offsetstream
from offsetstream.errors import TablesError, UsageError
from offsetstream.names import ViewName
from offsetstream.tables.path_store.store import PathSource, PathStore
from offsetstream.tables.schema import is_history
from offsetstream.views import reader as reading
from offsetstream.views.files import all_views
from offsetstream.views.reader import ViewReader
from offsetstream.views.verdicts import VERDICTS
from testkit.examples import seeds
from testkit.group_world import GroupWorld
from testkit.sampled_logs import START_MS, instant
from testkit.tables import append_rows, new_tables, reader_of, write_tables

NOW = datetime.now(UTC).replace(microsecond=0)
PLACE = {"offsets_partition": 1, "log_id": 0, "group_id": "billing", "topic": "orders", "partition": 0}


def tables_with_a_commit(folder: Path) -> offsetstream.Tables:
    new_tables(folder)
    at = {"commit_timestamp": NOW, "commit_timestamp_ms": int(NOW.timestamp() * 1000), "record_timestamp": NOW}
    commit = {**PLACE, **at, "record_offset": 7, "committed_offset": 41}
    append_rows(folder, "committed_offsets", [commit | {"in_coordinator_partition": True}])
    append_rows(folder, "offset_commits", [commit | {"is_tombstone": False, "written_day": NOW.date()}])
    end = {"topic": "orders", "partition": 0, "log_start_offset": 0, "high_watermark": 50, "last_stable_offset": 49}
    append_rows(folder, "topic_partitions", [end | {"sampled_at": NOW, "changed_at": NOW}])
    return offsetstream.open_tables(folder)


def test_every_view_of_empty_tables_has_its_columns(tmp_path: Path) -> None:
    new_tables(tmp_path)
    tables = offsetstream.open_tables(tmp_path)
    for view in all_views().values():
        found = tables.view(cast("ViewName", view.name), at=NOW if view.is_at else None)
        assert found.column_names == list(view.column_names)
        assert found.num_rows == {"clock": 1, "max_age": 1, "verdicts": len(VERDICTS)}.get(view.name, 0)


def test_lag_of_a_group(tmp_path: Path) -> None:
    tables = tables_with_a_commit(tmp_path)
    (row,) = tables.view("lag", group="billing").to_pylist()
    assert (row["lag"], row["lag_read_committed"], row["reason"], row["sampled_at"]) == (9, 8, None, NOW)
    assert tables.view("lag", group="billing", partition=1).num_rows == 0
    assert tables.view("lag", topic="orders", partition=[0]).num_rows == 1


def test_offsets_at_an_instant(tmp_path: Path) -> None:
    tables = tables_with_a_commit(tmp_path)
    book = {"offsets_partition": 1, "log_id": 0, "history_complete_from": NOW - timedelta(minutes=1)}
    append_rows(tmp_path, "offsets_partitions", [book])
    assert tables.view("offsets_at", at=NOW, group="billing").num_rows == 0
    (row,) = tables.view("offsets_at", at=NOW + timedelta(seconds=1), group="billing").to_pylist()
    assert (row["committed_offset"], row["unknown_reason"]) == (41, None)
    early = tables.view("offsets_at", at=NOW - timedelta(minutes=2)).to_pylist()
    assert {(each["group_id"], each["committed_offset"], each["unknown_before"]) for each in early} == {
        (None, None, book["history_complete_from"]),
        ("billing", None, book["history_complete_from"]),
    }


def test_histories_are_opened_after_the_state_tables(tmp_path: Path) -> None:
    opened: list[str] = []

    class Told(PathStore):
        def source(self, name: str) -> PathSource:
            opened.append(name)
            return super().source(name)

    new_tables(tmp_path)
    ViewReader(Told(str(tmp_path))).rows("group_status")
    assert len(opened) == len(set(opened))
    assert {"offset_commits", "end_offsets", "groups"} <= set(opened)
    assert [is_history(name) for name in opened] == sorted(is_history(name) for name in opened)


def test_thresholds_come_from_the_users_table(tmp_path: Path) -> None:
    tables_with_a_commit(tmp_path)
    assert not (tmp_path / "thresholds").exists()
    (before,) = offsetstream.open_tables(tmp_path).view("group_status").to_pylist()
    write_deltalake(tmp_path / "thresholds", pa.table({"group_id": ["billing"], "allowed_lag": [20]}))
    (after,) = offsetstream.open_tables(tmp_path).view("group_status").to_pylist()
    assert before["verdict_reason"].startswith("messages wait")
    assert (after["verdict"], after["verdict_reason"]) == ("ok", "nothing waits")


@pytest.mark.parametrize("name", ["allowed_lag", "minimum_complete", "intervals", "window_seconds"])
def test_a_threshold_that_is_not_a_number_is_ignored(tmp_path: Path, name: str) -> None:
    """A notebook may write a missing number as NaN. NaN is above every number, so it switched an alarm off."""
    tables_with_a_commit(tmp_path)
    (before,) = offsetstream.open_tables(tmp_path).view("group_status").to_pylist()
    write_deltalake(tmp_path / "thresholds", pa.table({"group_id": ["billing"], name: [float("nan")]}))
    (after,) = offsetstream.open_tables(tmp_path).view("group_status").to_pylist()
    told = ("verdict", "worst_status", "complete")
    assert [after[column] for column in told] == [before[column] for column in told]
    assert before["verdict"] == "unknown"


def test_a_query_may_read_a_table_twice(tmp_path: Path) -> None:
    tables_with_a_commit(tmp_path)
    ends = DeltaTable(tmp_path / "topic_partitions")
    expected = offsetstream.open_tables(tmp_path).view("lag").to_pylist()
    ends.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    assert offsetstream.open_tables(tmp_path).view("lag").to_pylist() == expected
    assert offsetstream.open_tables(tmp_path).view("time_lag").num_rows == 1


def test_unknown_tables_and_views_are_refused(tmp_path: Path) -> None:
    new_tables(tmp_path)
    tables = offsetstream.open_tables(tmp_path)
    shutil.rmtree(tmp_path / "topic_partitions")
    with pytest.raises(TablesError, match="there is no table"):
        tables.view("lag")
    with pytest.raises(UsageError, match="offsets_at needs an instant"):
        tables.view("offsets_at")
    with pytest.raises(UsageError, match="has no time zone: give --at"):
        tables.view("offsets_at", at=datetime(2026, 1, 1))
    with pytest.raises(UsageError, match="lag answers about now only"):
        tables.view("lag", at=NOW)


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
