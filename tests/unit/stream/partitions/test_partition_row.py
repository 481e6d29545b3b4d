from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime

import pytest

from offsetstream.stream.partitions.partition_book import PartitionBook
from offsetstream.stream.partitions.partition_row import PartitionRow
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
