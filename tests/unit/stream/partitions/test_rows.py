from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime, timedelta

import pytest

from offsetstream.metrics.job_metrics import ReplayPosition
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.partitions.rows import PartitionRow, partition_figures
from offsetstream.tables.names import OFFSETS_PARTITIONS
from offsetstream.tables.schema import load_schema


def test_a_row_has_the_columns_of_the_table() -> None:
    assert tuple(field.name for field in fields(PartitionRow)) == tuple(load_schema(OFFSETS_PARTITIONS).column_names)


def test_a_stored_row_may_lack_columns_and_have_others() -> None:
    stored = {"offsets_partition": 7, "log_id": None, "next_offset": 5, "mine": "x"}
    assert PartitionRow.of(stored) == PartitionRow(7, log_id=0, next_offset=5)


def test_a_stored_time_without_a_zone_is_utc() -> None:
    stored = {"offsets_partition": 7, "last_stable_offset_since": datetime(2026, 1, 1)}
    assert PartitionRow.of(stored).last_stable_offset_since == datetime(2026, 1, 1, tzinfo=UTC)


def test_only_the_book_changes_its_rows(book: PartitionBook) -> None:
    with pytest.raises(TypeError):
        book.rows[1] = PartitionRow(1, next_offset=5)  # type: ignore[index]  # what mypy says, Python says too
    with pytest.raises(FrozenInstanceError):
        book.rows[1].next_offset = 5  # type: ignore[misc]  # the same
    before = book.rows[1]
    book.advance({1: 5})
    assert (before.next_offset, book.rows[1].next_offset) == (None, 5)


MINUTE = timedelta(minutes=1)


def standing(*rows: PartitionRow) -> ReplayPosition:
    return partition_figures(rows, 15 * MINUTE)


def test_a_topic_that_was_never_loaded_is_not_ready() -> None:
    found = standing(PartitionRow(0), PartitionRow(1, load_state="OWNED"))
    assert (found.by_state, found.is_ready) == ({"unloaded": 1, "owned": 1}, False)


def test_behind_counts_only_records_that_the_log_still_has() -> None:
    now = datetime.now(UTC)
    behind = PartitionRow(
        0, load_state="OWNED", next_offset=40, last_stable_offset=100, high_watermark=100, caught_up_at=now - 5 * MINUTE
    )
    never = PartitionRow(
        1, load_state="LOADING", log_start_offset=900, last_stable_offset=910, load_started_at=now - MINUTE
    )
    done = PartitionRow(2, load_state="OWNED", next_offset=7, last_stable_offset=7, caught_up_at=now - 50 * MINUTE)
    assert standing(behind, never, done).behind_records == 60 + 10
    assert 300 <= standing(behind, never, done).behind_seconds < 310
    assert standing(done).behind_seconds == 0


def test_an_open_transaction_counts_and_hangs_after_the_limit() -> None:
    def held(since: datetime) -> PartitionRow:
        return PartitionRow(0, last_stable_offset=10, high_watermark=25, last_stable_offset_since=since)

    now = datetime.now(UTC)
    found = standing(held(now - MINUTE), held(now - 16 * MINUTE))
    assert (found.blocked, found.blocked_records, found.hanging) == (2, 30, 1)


def test_a_partition_without_a_leader_counts() -> None:
    rows = [PartitionRow(0, coordinator_available=False), PartitionRow(1, coordinator_available=True), PartitionRow(2)]
    assert standing(*rows).leaderless == 1
