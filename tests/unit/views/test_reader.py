"""The views over Delta tables, as Python programs and commands query them."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake

import offsetstream
from offsetstream.errors import TablesError, UsageError
from offsetstream.names import ViewName
from offsetstream.tables.path_store.store import PathSource, PathStore
from offsetstream.tables.schema import is_history
from offsetstream.views.files import all_views
from offsetstream.views.reader import ViewReader
from offsetstream.views.verdicts import VERDICTS
from testkit.tables import append_rows, new_tables

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
