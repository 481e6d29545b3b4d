from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.stream.partitions.load_policy import partitions_to_load
from offsetstream.stream.partitions.partition_row import PartitionRow
from offsetstream.tables.names import OWNED, LoadState

RETENTION = timedelta(hours=24)
SAFE = 0.9 * RETENTION


def ends(stable: int = 100, high: int | None = None, start: int = 0) -> PartitionEnds:
    return PartitionEnds(start, stable, stable if high is None else high, 1, 1, datetime.now(UTC))


def row(next_offset: int | None = 100, state: LoadState | None = OWNED, hours_ago: float = 0.0) -> PartitionRow:
    caught_up_at = datetime.now(UTC) - timedelta(hours=hours_ago)
    return PartitionRow(7, load_state=state, next_offset=next_offset, caught_up_at=caught_up_at)


def must_load(row: PartitionRow, ends: PartitionEnds) -> bool:
    return partitions_to_load({7: row}, {7: ends}, SAFE) == [7]


@pytest.mark.parametrize("state", [None, "LOADING", "FAILED", "UNLOADED"])
def test_a_partition_without_a_finished_load_is_loaded(state: LoadState | None) -> None:
    assert must_load(row(state=state), ends())
    assert must_load(row(None, state), ends())


def test_a_partition_that_is_applied_to_its_end_is_not_loaded() -> None:
    assert not must_load(row(), ends())


def test_an_idle_partition_is_not_loaded_after_any_pause_of_the_job() -> None:
    assert not must_load(row(hours_ago=1000), ends())


@pytest.mark.parametrize(("hours_ago", "is_loaded"), [(0.0, False), (21.5, False), (21.7, True), (1000, True)])
def test_a_partition_behind_for_nine_tenths_of_the_retention_is_loaded(hours_ago: float, is_loaded: bool) -> None:
    assert must_load(row(99, hours_ago=hours_ago), ends()) is is_loaded


def test_retention_is_the_topics_own() -> None:
    behind, week = row(99, hours_ago=30), timedelta(days=7)
    assert partitions_to_load({0: behind}, {0: ends()}, week) == []
    assert partitions_to_load({0: behind}, {0: ends()}, SAFE) == [0]


def test_a_time_without_a_zone_is_utc() -> None:
    caught_up_at = (datetime.now(UTC) - timedelta(hours=20)).replace(tzinfo=None)
    stored = {"offsets_partition": 7, "load_state": OWNED, "next_offset": 99, "caught_up_at": caught_up_at}
    assert not must_load(PartitionRow.of(stored), ends())


def test_a_partition_that_was_never_caught_up_is_loaded() -> None:
    assert must_load(replace(row(99), caught_up_at=None), ends())
    assert not must_load(replace(row(), caught_up_at=None), ends())


def test_a_caught_up_time_in_the_future_does_not_count() -> None:
    """The clock was set back since then, so the age is unknown."""
    assert must_load(row(99, hours_ago=-2), ends())
    assert not must_load(row(99, hours_ago=-0.5), ends())  # clocks of two hosts
    assert not must_load(row(hours_ago=-2), ends())


def test_a_partition_that_lost_records_is_loaded() -> None:
    assert must_load(row(50), ends(start=51))
    assert not must_load(row(50), ends(start=50))


@pytest.mark.parametrize(("next_offset", "is_other"), [(None, False), (99, False), (100, False), (101, True)])
def test_a_log_that_ends_before_the_applied_offset_is_another_one(next_offset: int | None, is_other: bool) -> None:
    assert row(next_offset).is_other_log(ends(stable=40, high=100)) is is_other


def test_a_replaced_log_is_loaded() -> None:
    assert must_load(row(101), ends())
    assert must_load(row(1), ends(0))


def test_an_open_transaction_does_not_replace_the_log() -> None:
    assert not must_load(row(100), ends(stable=40, high=100))


def test_only_partitions_with_end_offsets_are_loaded_in_order() -> None:
    rows = {2: row(), 0: row(None, None), 3: row(None, None), 1: row(None, None)}
    assert partitions_to_load(rows, {0: ends(), 1: ends(), 2: ends()}, SAFE) == [0, 1]
    assert partitions_to_load({}, {}, SAFE) == []
