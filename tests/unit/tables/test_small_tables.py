from datetime import UTC, datetime
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetstream.errors import ConflictError
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import CachedRows, insert_rows, overwrite_rows, read_rows, update_rows
from offsetstream.tables.transaction import BatchId, app_id, is_done
from testkit.tables import new_tables

BOOK, EVENTS = "offsets_partitions", "partition_events"
LOAD = BatchId(1, -1)
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)


def rows(tables: PathStore, name: str) -> list[dict[str, Any]]:
    return read_rows(tables.open(name))


def offsets(tables: PathStore) -> list[int]:
    return [row["next_offset"] for row in rows(tables, BOOK)]


def event(partition: int, name: str, load_id: int | None = 1, epoch: int | None = None) -> dict[str, Any]:
    place = {"offsets_partition": partition, "log_id": 0, "event": name, "load_id": load_id}
    return place | {"coordinator_epoch": epoch, "event_at": MOMENT}


def book(next_offset: int) -> list[dict[str, Any]]:
    return [{"offsets_partition": 3, "next_offset": next_offset}]


def test_overwritten_rows_are_the_only_ones(tables: PathStore) -> None:
    overwrite_rows(tables, BOOK, book(1) + book(2), BatchId(1, 0))
    overwrite_rows(tables, BOOK, book(3), BatchId(1, 1))
    assert rows(tables, BOOK) == [dict.fromkeys(load_schema(BOOK).column_names) | book(3)[0]]
    overwrite_rows(tables, BOOK, [], BatchId(1, 2))
    assert rows(tables, BOOK) == []


def test_an_older_batch_overwrites_nothing(tables: PathStore) -> None:
    overwrite_rows(tables, BOOK, book(2), BatchId(2, 0))
    overwrite_rows(tables, BOOK, book(1), BatchId(1, 99))
    assert offsets(tables) == [2]


def test_a_load_is_always_repeated(tables: PathStore) -> None:
    overwrite_rows(tables, BOOK, book(1), BatchId(1, 5))
    overwrite_rows(tables, BOOK, book(2), LOAD)
    overwrite_rows(tables, BOOK, book(3), LOAD)
    assert offsets(tables) == [3]
    assert DeltaTable(tables.table(BOOK)).transaction_version(app_id(BOOK)) == BatchId(1, 5).version


def test_a_batch_is_done_from_its_transaction_on(tables: PathStore) -> None:
    def done(batch: BatchId) -> bool:
        return is_done(tables.open(BOOK), batch)

    assert not done(BatchId(1, 0))
    overwrite_rows(tables, BOOK, book(1), BatchId(1, 3))
    assert [done(BatchId(1, number)) for number in (0, 3, 4)] == [True, True, False]
    assert not done(BatchId(2, 0))
    assert not done(LOAD)


def test_inserted_rows_are_signed(tables: PathStore) -> None:
    day = datetime.now(UTC).date()
    insert_rows(tables, EVENTS, [event(3, "loaded") | {"records": 7}], BatchId(4, 2))
    (row,) = rows(tables, EVENTS)
    assert day <= row["written_day"] <= datetime.now(UTC).date()
    signed = event(3, "loaded") | {"records": 7, "checkpoint_id": 4, "batch_id": 2, "written_day": row["written_day"]}
    assert row == dict.fromkeys(load_schema(EVENTS).column_names) | signed


def test_a_row_with_an_existing_key_is_not_inserted(tables: PathStore) -> None:
    insert_rows(tables, EVENTS, [event(3, "loaded")], LOAD)
    insert_rows(tables, EVENTS, [event(3, "loaded") | {"records": 9}, event(4, "loaded")], LOAD)
    found = sorted((row["offsets_partition"], row["records"]) for row in rows(tables, EVENTS))
    assert found == [(3, None), (4, None)]


def test_null_is_a_value_of_a_key(tables: PathStore) -> None:
    moved = [event(1, "coordinator moved", None, 5), event(1, "coordinator moved", None, None)]
    for _ in range(2):
        insert_rows(tables, EVENTS, moved, LOAD)
    found = [(row["load_id"], row["coordinator_epoch"]) for row in rows(tables, EVENTS)]
    assert sorted(found, key=str) == [(None, 5), (None, None)]


def test_a_repeated_batch_inserts_what_it_sees_for_the_first_time(tables: PathStore) -> None:
    insert_rows(tables, EVENTS, [event(1, "loaded")], BatchId(1, 0))
    insert_rows(tables, EVENTS, [event(1, "loaded"), event(2, "loaded")], BatchId(1, 0))
    assert sorted(row["offsets_partition"] for row in rows(tables, EVENTS)) == [1, 2]


def test_an_older_batch_inserts_nothing(tables: PathStore) -> None:
    insert_rows(tables, EVENTS, [event(1, "loaded")], BatchId(1, 1))
    insert_rows(tables, EVENTS, [event(2, "loaded")], BatchId(1, 0))
    insert_rows(tables, EVENTS, [event(3, "loaded")], BatchId(0, 9))
    assert [row["offsets_partition"] for row in rows(tables, EVENTS)] == [1]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.sampled_from(["", "\0", "'", '"', "\n"])


@settings(max_examples=15)
@given(names=st.lists(texts, unique=True, min_size=1, max_size=6))
def test_any_text_is_a_key_of_its_own(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    tables = new_tables(tmp_path_factory.mktemp("tables"))
    for _ in range(2):
        insert_rows(tables, EVENTS, [event(1, name) for name in names], LOAD)
    assert sorted(row["event"] for row in rows(tables, EVENTS)) == sorted(names)


def test_cached_rows_are_read_again_only_after_another_write(
    tables: PathStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    overwrite_rows(tables, BOOK, book(1), BatchId(1, 0))
    held = CachedRows(tables.open(BOOK))
    assert held.update(lambda _: {"next_offset": 2}) == 1
    assert held.update(lambda _: None) == 0
    with monkeypatch.context() as patch:
        patch.delattr("offsetstream.tables.small_tables.read_rows")
        held.table.refresh()
        assert [row["next_offset"] for row in held.rows] == [2]
        held.update(lambda row: {"next_offset": row["next_offset"] + 1})
    assert offsets(tables) == [3]
    update_rows(tables.open(BOOK), lambda _: {"next_offset": 7})
    with pytest.raises(ConflictError):
        held.update(lambda _: {"next_offset": 4})
    held.table.refresh()
    assert [row["next_offset"] for row in held.rows] == [7]
