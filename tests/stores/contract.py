"""Tests that each store of tables must pass; they use its interface only.

A module that imports them provides the fixture `empty`: a store without tables.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import partial
from threading import Barrier
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from offsetstream.cluster.answers import CommittedOffset
from offsetstream.errors import (
    ConflictError,
    DoubledRowsError,
    LeaseError,
    NoTableError,
    OffsetstreamError,
    TablesError,
    TakenGroupError,
)
from offsetstream.operations.journal import HOLD, Journal
from offsetstream.operations.plan import Change, Plan
from offsetstream.tables.catalog_store import CatalogStore
from offsetstream.tables.create import create_tables
from offsetstream.tables.matching import merge_on_driver
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import DELETED, OPERATIONS, all_schemas, load_schema
from offsetstream.tables.small_tables import append_rows, insert_rows, overwrite_rows, read_rows
from offsetstream.tables.sql import in_partitions, sql_text
from offsetstream.tables.store import EVERY_ROW, Merge, Snapshot, Store, Transaction
from offsetstream.tables.transaction import BatchId, again_on_conflict, app_id
from offsetstream.tables.write import append_from_tasks
from testkit.merge_model import source_table
from testkit.task_rows import from_tasks
from testkit.waiting import today

OFFSETS, COMMITS, BOOK = "committed_offsets", "offset_commits", "offsets_partitions"
NEEDED = (OFFSETS, COMMITS, BOOK, "partition_events")  # a catalog needs seconds to create all
LOAD = BatchId(1, -1)
RIVALS = 6
SIGNATURE = ["checkpoint_id", "batch_id", "written_day"]
Write = Callable[[Snapshot], None]


@pytest.fixture
def store(empty: Store) -> Store:
    create_tables(empty, "cluster-1", "new", NEEDED)
    return empty


def commit(offset: int, group: str = "g", at: int = 0, partition: int = 1, **columns: Any) -> dict[str, Any]:
    place = {"offsets_partition": partition, "group_id": group, "topic": "t", "partition": 0, "log_id": 0}
    return place | {"committed_offset": offset, "record_offset": at} | columns


def merge(store: Store, *rows: dict[str, Any], batch: BatchId = LOAD, **how: Any) -> None:
    schema = load_schema(OFFSETS)
    merge_on_driver(store, source_table(schema, rows), Merge(schema, **how), batch)


def committed(store: Store) -> dict[str, int]:
    return {row["group_id"]: row["committed_offset"] for row in read_rows(store.open(OFFSETS))}


def history(*offsets: int) -> pa.Table:
    schema = pa.schema([field for field in load_schema(COMMITS).arrow if field.name not in SIGNATURE])
    rows = [{"offsets_partition": 1, "log_id": 0, "record_offset": offset, "group_id": "g"} for offset in offsets]
    return pa.Table.from_pylist([dict.fromkeys(schema.names) | row for row in rows], schema=schema)


def recorded(store: Store) -> list[int]:
    return sorted(row["record_offset"] for row in read_rows(store.open(COMMITS)))


def whole(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=load_schema(OFFSETS).arrow)


def add_column(store: Store, name: str, column: str) -> None:
    """Add a column of text, as a user might."""
    if isinstance(store, PathStore):
        DeltaTable(store.table(name)).alter.add_columns([Field(column, PrimitiveType("string"))])
    else:
        sql_of(store, name, f"ADD COLUMNS ({column} STRING)")


def set_property(store: Store, name: str, key: str, value: str) -> None:
    """Set a property of a table, as a user might."""
    if isinstance(store, PathStore):
        DeltaTable(store.table(name)).alter.set_table_properties({key: value}, raise_if_not_exists=False)
    else:
        sql_of(store, name, f"SET TBLPROPERTIES ('{key}' = '{value}')")


def sql_of(store: Store, name: str, clause: str) -> None:
    assert isinstance(store, CatalogStore)
    store.tables.spark.sql(f"ALTER TABLE {store.sql_name(name)} {clause}")


def add_note(store: Store) -> None:
    """Add a user's column, with a value in each row."""
    add_column(store, OFFSETS, "note")
    table = store.open(OFFSETS)
    rows = [row | {"note": f"of {row['group_id']}"} for row in read_rows(table)]
    table.replace(EVERY_ROW, [pa.Table.from_pylist(rows, schema=table.arrow)])


def test_a_table_is_created_once(empty: Store) -> None:
    store = empty
    create_tables(store, "cluster-1", "new")
    for schema in all_schemas().values():
        table = store.open(schema.name)
        assert list(table.columns) == list(schema.column_names)
        assert table.columns == {column.name: column.type for column in schema.columns}
        assert table.arrow == schema.arrow
        assert table.partitioned_by == schema.partitioned_by
        kept_otherwise = {
            "delta.enableExpiredLogCleanup",
            "delta.logRetentionDuration",
        }  # written by Spark in a catalog
        assert {
            k: v for k, v in schema.properties.items() if k not in kept_otherwise
        }.items() <= table.properties.items()
        before = (table.version, table.table_id)
        store.create(schema, {"offsetstream.cluster_id": "another"})
        again = store.open(schema.name)
        assert (again.version, again.table_id) == before
        assert again.properties["offsetstream.cluster_id"] == "cluster-1"
    assert len({store.open(name).table_id for name in all_schemas()}) == len(all_schemas())
    assert abs(store.open(OFFSETS).created_at - datetime.now(UTC)) < timedelta(hours=1)


def test_a_missing_table_is_reported(empty: Store) -> None:
    for ask in (empty.open, empty.source):
        with pytest.raises(
            NoTableError, match=r"there is no table .*groups: name .* with --tables, or create them with"
        ):
            ask("groups")
    assert empty.opened("groups") is None


def test_a_condition_filters_the_rows(store: Store) -> None:
    groups = ["a", "it's", 'a "b"', "a\\b", "%_", "", "日本", "${kafka.group.id}", "${env:HOME}"]
    merge(store, *(commit(number, group, partition=number) for number, group in enumerate(groups)))
    table = store.open(OFFSETS)
    for number, group in enumerate(groups):
        for where in (f"group_id = {sql_text(group)}", in_partitions([number])):
            assert [row["group_id"] for row in read_rows(table, where)] == [group]
    assert read_rows(table, in_partitions([])) == []
    (part,) = table.rows(in_partitions([1]), ["group_id", "committed_offset"])
    assert part.to_pylist() == [{"group_id": "it's", "committed_offset": 1}]
    assert part.schema == pa.schema([("group_id", pa.string()), ("committed_offset", pa.int64())])


def test_a_query_may_read_two_tables(store: Store) -> None:
    merge(store, commit(5, at=7), commit(6, "h", at=9))
    append_rows(store, COMMITS, history(7, 8), BatchId(1, 0))
    query = "SELECT s.group_id FROM rows r JOIN s ON r.record_offset = s.record_offset"
    found = store.open(COMMITS).query(query, s=store.open(OFFSETS)).read_all().to_pylist()
    assert found == [{"group_id": "g"}]


def test_a_look_up_sees_the_same_rows(store: Store) -> None:
    with duckdb.connect() as connection:
        assert store.source(OFFSETS).relation(connection) is None
        merge(store, commit(1, "a"), commit(2, "b"))
        source = store.source(OFFSETS)
        relation = source.relation(connection)
        assert relation is not None
        assert sorted(relation.select("group_id", "committed_offset").fetchall()) == [("a", 1), ("b", 2)]
    assert source.properties == store.open(OFFSETS).properties
    assert source.where.rstrip("/").removeprefix("file://") == store.open(OFFSETS).where.rstrip("/").removeprefix(
        "file://"
    )


def test_a_snapshot_stays_as_it_was_until_it_is_refreshed(store: Store) -> None:
    merge(store, commit(1, "a"))
    table = store.open(OFFSETS)
    merge(store, commit(2, "a"), batch=BatchId(1, 3))
    assert [row["committed_offset"] for row in read_rows(table)] == [1]
    assert table.transaction_version(app_id(OFFSETS)) is None
    version = table.version
    table.refresh()
    assert [row["committed_offset"] for row in read_rows(table)] == [2]
    assert table.transaction_version(app_id(OFFSETS)) == BatchId(1, 3).version
    assert table.version > version


def test_a_repeated_transaction_is_skipped(store: Store) -> None:
    batch = BatchId(1, 3)
    merge(store, commit(1), batch=batch)
    merge(store, commit(2), batch=batch)
    merge(store, commit(3), batch=BatchId(1, 2))
    assert committed(store) == {"g": 1}
    for _ in range(2):
        append_rows(store, COMMITS, history(5), batch)
    assert recorded(store) == [5]
    overwrite_rows(store, BOOK, [{"offsets_partition": 1, "next_offset": 1}], batch)
    overwrite_rows(store, BOOK, [{"offsets_partition": 1, "next_offset": 2}], batch)
    assert [row["next_offset"] for row in read_rows(store.open(BOOK))] == [1]


def test_a_load_is_never_skipped(store: Store) -> None:
    for number in range(3):
        merge(store, commit(number))
        assert committed(store) == {"g": number}


def test_a_replaced_writer_writes_no_more(store: Store) -> None:
    merge(store, commit(1), batch=BatchId(2, 0))
    for name in (OFFSETS, COMMITS):
        fence = BatchId(3, -1).version
        ids = (f"offsetstream/{name}/batch", f"offsetstream/{name}/load")
        store.open(name).commit_nothing(*(Transaction(each, fence) for each in ids))
    merge(store, commit(2), batch=BatchId(2, 2**31))  # its started write counts as done
    append_rows(store, COMMITS, history(5), BatchId(2, 9))
    loads: list[Callable[..., object]] = [
        partial(merge, store, commit(2)),
        partial(append_rows, store, COMMITS, history(5)),
    ]
    for load in loads:
        with pytest.raises(LeaseError, match="taken over"):
            load(batch=BatchId(2, -1))
    assert (committed(store), recorded(store)) == ({"g": 1}, [])
    merge(store, commit(3), batch=BatchId(3, 0))
    assert committed(store) == {"g": 3}


MINE = Transaction("mine", 7)
WRITES: dict[str, Write] = {
    "append": lambda table: table.append([whole(commit(9, "new"))], MINE),
    "replace": lambda table: table.replace(in_partitions([1]), [whole(commit(9, "new"))], MINE),
    "merge": lambda table: table.merge(
        source_table(load_schema(OFFSETS), [commit(9)]), Merge(load_schema(OFFSETS)), MINE
    ),
    "nothing": lambda table: table.commit_nothing(MINE),
}


@pytest.mark.parametrize("write", WRITES)
def test_the_second_commit_of_one_transaction_fails(store: Store, write: str) -> None:
    merge(store, commit(1))
    stale, other = store.open(OFFSETS), store.open(OFFSETS)
    other.commit_nothing(Transaction("mine", 8))
    with pytest.raises(ConflictError):
        WRITES[write](stale)
    assert committed(store) == {"g": 1}


@pytest.mark.parametrize("write", ["replace", "merge"])
def test_a_read_and_its_overwrite_use_one_version(store: Store, write: str) -> None:
    merge(store, commit(1), commit(1, "h"))
    stale = store.open(OFFSETS)
    store.open(OFFSETS).replace(EVERY_ROW, [whole(commit(5), commit(5, "h"))])
    with pytest.raises(ConflictError):
        WRITES[write](stale)
    assert committed(store) == {"g": 5, "h": 5}


def test_a_lost_race_is_retried(store: Store) -> None:
    merge(store, commit(1))
    tried: list[int] = []

    @again_on_conflict
    def raise_by_one() -> None:
        table = store.open(OFFSETS)
        (row,) = read_rows(table)
        tried.append(row["committed_offset"])
        if len(tried) == 1:
            merge(store, commit(10))
        table.replace(EVERY_ROW, [whole(row | {"committed_offset": row["committed_offset"] + 1})])

    raise_by_one()
    assert tried == [1, 10]
    assert committed(store) == {"g": 11}


def test_an_empty_commit_changes_no_row(store: Store) -> None:
    merge(store, commit(1))
    store.open(OFFSETS).commit_nothing(Transaction("a", 1), Transaction("b", 2))
    now = store.open(OFFSETS)
    assert (now.transaction_version("a"), now.transaction_version("b"), now.transaction_version("c")) == (1, 2, None)
    assert committed(store) == {"g": 1}


def test_a_merge_that_changes_nothing_makes_no_version(store: Store) -> None:
    merge(store, commit(1), commit(2, "h"))
    version = store.open(OFFSETS).version
    merge(store, commit(1), commit(3, "gone") | {DELETED: True})
    assert store.open(OFFSETS).version == version
    merge(store, commit(2))
    assert store.open(OFFSETS).version == version + 1


def test_a_merge_inserts_updates_and_deletes(store: Store) -> None:
    merge(store, commit(1, "a"), commit(1, "b"), commit(1, "c"))
    merge(store, commit(2, "b"), commit(2, "c") | {DELETED: True}, commit(2, "d"))
    assert committed(store) == {"a": 1, "b": 2, "d": 2}


def test_an_older_record_never_overwrites_a_newer_one(store: Store) -> None:
    merge(store, commit(1, at=5), commit(1, "h", at=5), newer_only=True)
    merge(store, commit(2, at=4), commit(2, "h", at=4) | {DELETED: True}, newer_only=True)
    assert committed(store) == {"g": 1, "h": 1}
    merge(store, commit(3, at=6), commit(3, "h", at=0, log_id=1) | {DELETED: True}, newer_only=True)
    assert committed(store) == {"g": 3}


def test_replace_where_leaves_only_the_new_rows(store: Store) -> None:
    merge(store, commit(1, "a", at=9), commit(1, "b", at=9), commit(1, "c", partition=2))
    merge(store, commit(2, "b", at=3), newer_only=True, replace_where=in_partitions([1]))
    assert committed(store) == {"b": 2, "c": 1}
    merge(store, replace_where=in_partitions([1]))
    assert committed(store) == {"c": 1}


def test_doubled_rows_are_refused_and_replaced(store: Store) -> None:
    merge(store, commit(1, "a"), commit(1, "b"), commit(1, "c", partition=2))
    store.open(OFFSETS).append([whole(commit(1, "a"))])
    with pytest.raises(DoubledRowsError) as told:
        merge(store, commit(2, "a"), commit(2, "c", partition=2))
    assert told.value.partitions == {1}
    assert sorted(row["committed_offset"] for row in read_rows(store.open(OFFSETS))) == [1] * 4
    merge(store, commit(2, "a"), replace_where=in_partitions([1]))
    assert committed(store) == {"a": 2, "c": 1}


def test_users_columns_stay(store: Store) -> None:
    merge(store, commit(1, "a"), commit(1, "b"), commit(1, "c"))
    add_note(store)
    assert store.open(OFFSETS).columns["note"] == "STRING"
    merge(store, commit(2, "a"), commit(2, "d"))
    merge(store, commit(3, "b"), commit(3, "a"), replace_where=in_partitions([1]))
    notes = {row["group_id"]: row["note"] for row in read_rows(store.open(OFFSETS))}
    assert notes == {"a": "of a", "b": "of b"}
    merge(store, commit(4, "e"))
    assert {row["group_id"]: row["note"] for row in read_rows(store.open(OFFSETS))} == notes | {"e": None}


def test_columns_that_rows_lack_are_null(store: Store) -> None:
    table = store.open(OFFSETS)
    table.append([whole(commit(1)).select(["offsets_partition", "group_id"])])
    (row,) = read_rows(store.open(OFFSETS))
    assert (row["group_id"], row["topic"], row["committed_offset"]) == ("g", None, None)


def test_a_users_property_is_shown_and_allowed(store: Store) -> None:
    before = dict(store.open(OFFSETS).properties)
    set_property(store, OFFSETS, "mine", "1")
    table = store.open(OFFSETS)
    assert table.properties == before | {"mine": "1"}
    table.require_writable()


def test_a_table_property_that_prevents_writing_is_refused(store: Store) -> None:
    set_property(store, OFFSETS, "delta.appendOnly", "true")
    with pytest.raises(TablesError, match=r"delta\.appendOnly"):
        store.open(OFFSETS).require_writable()


def test_the_days_of_a_history_are_listed(store: Store) -> None:
    day = today()
    append_rows(store, COMMITS, history(1), BatchId(1, 0))
    old = append_rows(store, COMMITS, history(2), BatchId(1, 1))
    assert old is not None
    at = old.column_names.index("written_day")
    for other in (date(2026, 1, 2), None):
        store.open(COMMITS).append([old.set_column(at, "written_day", pa.array([other], pa.date32()))])
    assert store.open(COMMITS).written_days() == {date(2026, 1, 2), day}


def test_events_are_inserted_once(store: Store) -> None:
    rows = [{"offsets_partition": number, "log_id": 0, "event": "loaded", "load_id": 1} for number in range(2)]
    insert_rows(store, "partition_events", rows[:1], LOAD)
    insert_rows(store, "partition_events", rows, LOAD)
    assert len(read_rows(store.open("partition_events"))) == 2


def test_operations_are_recorded_in_a_separate_table(store: Store) -> None:
    plan = Plan("reset", [Change("g", "t", 0, CommittedOffset(1), CommittedOffset(2))])
    for number in range(2):
        journal = Journal(store, "cluster-1", str(number), "offsets reset")
        with journal.holding(plan):
            journal.started(plan, "a file")
            journal.ended(plan, "a file", "done", {"refused": []})
    noted = {(row["operation_id"], row["status"], row["groups"]) for row in read_rows(store.open(OPERATIONS.name))}
    assert noted == {(id_, status, '["g"]') for id_ in "01" for status in ("started", "done")}


def test_one_operation_at_a_time_holds_a_group(store: Store) -> None:
    plan, other = (Plan("reset", [Change(g, "t", 0, None, CommittedOffset(2))]) for g in ("g", "h"))
    first, second = (Journal(store, "cluster-1", id_, "offsets reset") for id_ in ("first", "second"))
    with first.holding(plan):
        with pytest.raises(TakenGroupError, match=r"changing group 'g' since .*\(reset, operation first\)"):
            second.holding(plan).__enter__()
        with second.holding(other):
            pass
        first.keep()
        first.started(plan, "a file")
        with pytest.raises(TakenGroupError, match="operation first"):
            second.holding(plan).__enter__()
        first.ended(plan, "a file", "done", {})
        with second.holding(plan):
            pass
    rows = read_rows(store.open(OPERATIONS.name))
    assert {(row["operation_id"], row["status"], row["held_until"]) for row in rows} == {
        ("first", "started", None),
        ("first", "done", None),
    }


def test_a_hold_that_is_over_is_taken_over(store: Store) -> None:
    plan = Plan("reset", [Change("g", "t", 0, None, CommittedOffset(2))])
    dead, late, next_ = (
        Journal(store, "cluster-1", id_, "offsets reset", hold)
        for id_, hold in (("dead", timedelta()), ("late", timedelta()), ("next", HOLD))
    )
    with suppress(OffsetstreamError), dead.holding(plan), late.holding(plan):
        late.started(plan, "a file")
        with next_.holding(plan):
            with pytest.raises(OffsetstreamError, match="taken over the groups of operation late"):
                late.started(plan, "a file")
            rows = {row["operation_id"]: row["status"] for row in read_rows(store.open(OPERATIONS.name))}
            assert rows == {"late": "started", "next": "taken"}


def test_of_many_operations_at_once_one_holds_the_group(store: Store) -> None:
    plan = Plan("reset", [Change("g", "t", 0, None, CommittedOffset(2))])
    start, end = Barrier(RIVALS), Barrier(RIVALS)

    def take(number: int) -> str:
        journal = Journal(store, "cluster-1", str(number), "offsets reset")
        start.wait()
        try:
            with journal.holding(plan):
                end.wait()
        except TakenGroupError:
            end.wait()
            return "refused"
        except BaseException:
            end.abort()  # nobody waits for this one
            raise
        return "taken"

    with ThreadPoolExecutor(RIVALS) as pool:
        found = sorted(pool.map(take, range(RIVALS)))
    assert found == ["refused"] * (RIVALS - 1) + ["taken"]
    assert read_rows(store.open(OPERATIONS.name)) == []


def test_rows_of_tasks_join_a_history_in_one_commit(store: Store) -> None:
    batch, day = BatchId(1, 0), date(2026, 1, 2)
    rows = from_tasks(store, COMMITS, [history(*offsets) for offsets in ([1, 2], [3], [])], batch, day)
    assert (rows.count, sum(entry.rows for entry in rows.entries)) == (3, 3)
    version = store.open(COMMITS).version
    assert recorded(store) == []
    for _ in range(2):
        append_from_tasks(store, COMMITS, rows, batch)
    assert recorded(store) == [1, 2, 3]
    assert {(row["batch_id"], row["written_day"]) for row in read_rows(store.open(COMMITS))} == {(0, day)}
    assert store.open(COMMITS).version == version + 1


@pytest.mark.parametrize("has_note", [False, True])
def test_rows_of_tasks_replace_those_of_their_partitions(store: Store, has_note: bool) -> None:
    merge(store, commit(1, "a"), commit(2, "b", partition=2), commit(3, "c", partition=3), commit(9, "gone"))
    if has_note:
        add_note(store)
    new = [whole(commit(10, "a"), commit(11, "d")), whole(), whole(commit(12, "e", partition=4))]
    table = store.open(OFFSETS)
    table.replace_from_tasks(in_partitions([1, 3, 4]), from_tasks(store, OFFSETS, new, LOAD), Transaction("load", 1))
    assert committed(store) == {"a": 10, "b": 2, "d": 11, "e": 12}
    assert store.open(OFFSETS).transaction_version("load") == 1
    if has_note:
        notes = {row["group_id"]: row["note"] for row in read_rows(store.open(OFFSETS))}
        assert notes == {"a": "of a", "b": "of b", "d": None, "e": None}
    table = store.open(OFFSETS)
    table.replace_from_tasks(in_partitions([1]), from_tasks(store, OFFSETS, [whole()], LOAD), Transaction("load", 2))
    assert committed(store) == {"b": 2, "e": 12}


def test_rows_of_tasks_do_not_replace_what_was_written_meanwhile(store: Store) -> None:
    merge(store, commit(1, "a"))
    late, new = store.open(OFFSETS), from_tasks(store, OFFSETS, [whole(commit(10, "a"))], LOAD)
    merge(store, commit(2, "b", partition=2))
    with pytest.raises(ConflictError):
        late.replace_from_tasks(in_partitions([1]), new, Transaction("load", 1))
    assert committed(store) == {"a": 1, "b": 2}


def test_small_files_are_found_and_dead_ones_kept_for_their_time(store: Store) -> None:
    for number in range(3):
        append_rows(store, COMMITS, history(number), BatchId(1, number))
    files = store.files(store.open(COMMITS))
    (crowd,) = files.small_files()
    assert (crowd.day, crowd.files, crowd.is_closed) == (today(), 3, False)
    files.clear()
    assert (files.lost(), files.removable(), files.stored().files) == ([], set(), 3)
    assert len(read_rows(store.open(COMMITS))) == 3


def test_a_day_of_a_history_is_compacted(store: Store) -> None:
    for number in range(3):
        append_rows(store, COMMITS, history(number), BatchId(1, number))
    before = read_rows(store.open(COMMITS))
    (crowd,) = store.files(store.open(COMMITS)).small_files()
    store.files(store.open(COMMITS)).compact(crowd)
    table = store.open(COMMITS)
    assert store.files(table).small_files() == []
    assert sorted(read_rows(table), key=str) == sorted(before, key=str)
    assert table.transaction_version(app_id(COMMITS)) == BatchId(1, 2).version
    assert store.files(table).lost() == []
