"""Merges with delta-rs beyond what every store does (test_store.py).

tests/spark/test_merge.py shows that Spark's merges have the same result.
"""

from functools import partial
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from offsetstream.errors import ConflictError, DoubledRowsError
from offsetstream.stream.lifecycle.checkpoint import Checkpoint
from offsetstream.tables.matching import merge_on_driver
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import DELETED, load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.store import EVERY_ROW, Merge
from offsetstream.tables.transaction import BatchId, transaction_of
from testkit.merge_model import HOSTILE, MergeModel, Row, in_order, random_steps, source_table

OFFSETS, ASSIGNMENTS, GROUPS = "committed_offsets", "member_assignments", "groups"
LOAD = BatchId(1, -1)


def merge(tables: PathStore, name: str, *rows: Row, batch: BatchId = LOAD, **how: Any) -> None:
    schema = load_schema(name)
    merge_on_driver(tables, source_table(schema, rows), Merge(schema, **how), batch)


def rows(tables: PathStore, name: str) -> list[Row]:
    return in_order(read_rows(tables.open(name)))


def commit(offset: int, group: str = "g", at: int = 0, partition: int = 1, **columns: Any) -> Row:
    place = {"offsets_partition": partition, "group_id": group, "topic": "t", "partition": 0}
    return place | {"committed_offset": offset, "record_offset": at, "log_id": 0} | columns


def committed(tables: PathStore) -> dict[str, int]:
    return {row["group_id"]: row["committed_offset"] for row in rows(tables, OFFSETS)}


def test_a_value_may_become_null_and_null_a_value(tables: PathStore) -> None:
    for metadata in ("x", None, "", None, "y"):
        merge(tables, OFFSETS, commit(1, metadata=metadata))
        assert [row["metadata"] for row in rows(tables, OFFSETS)] == [metadata]


@pytest.mark.parametrize(
    ("log_id", "record_offset", "is_newer"), [(0, 4, False), (0, 5, True), (0, 6, True), (1, 0, True), (-1, 9, False)]
)
@pytest.mark.parametrize("deleted", [False, True])
def test_newer_only_keeps_the_newer_record(
    tables: PathStore, log_id: int, record_offset: int, is_newer: bool, deleted: bool
) -> None:
    merge(tables, OFFSETS, commit(1, at=5), newer_only=True)
    later = commit(2, at=record_offset, log_id=log_id) | {DELETED: deleted}
    merge(tables, OFFSETS, later, newer_only=True)
    changed = {} if deleted else {"g": 2}
    assert committed(tables) == (changed if is_newer else {"g": 1})


def test_without_newer_only_the_last_merge_wins(tables: PathStore) -> None:
    merge(tables, GROUPS, {"offsets_partition": 1, "group_id": "g", "state": "Stable", "record_offset": 9, "log_id": 0})
    merge(tables, GROUPS, {"offsets_partition": 1, "group_id": "g", "state": "Empty", "log_id": 0})
    assert [(row["state"], row["record_offset"]) for row in rows(tables, GROUPS)] == [("Empty", None)]


def test_doubled_rows_block_their_partition_only(tables: PathStore) -> None:
    merge(tables, OFFSETS, commit(1, "a"))
    write_deltalake(tables.table(OFFSETS), DeltaTable(tables.table(OFFSETS)).to_pyarrow_table(), mode="append")
    merge(tables, OFFSETS, commit(3, "d", partition=3))
    with pytest.raises(DoubledRowsError, match=r"committed_offsets has rows twice in the offsets partitions 1$"):
        merge(tables, OFFSETS, commit(2, "a"))


def test_a_batch_is_merged_once(tables: PathStore) -> None:
    merge(tables, OFFSETS, commit(1), batch=BatchId(1, 0))
    version = DeltaTable(tables.table(OFFSETS)).version()
    merge(tables, OFFSETS, commit(2), batch=BatchId(1, 0))
    assert committed(tables) == {"g": 1}
    assert DeltaTable(tables.table(OFFSETS)).version() == version


def test_the_batches_of_one_table_are_not_those_of_another(tables: PathStore) -> None:
    merge(tables, GROUPS, {"offsets_partition": 1, "group_id": "g"}, batch=BatchId(1, 7))
    merge(tables, OFFSETS, commit(1), batch=BatchId(1, 0))
    assert committed(tables) == {"g": 1}


@pytest.mark.parametrize("batch", [BatchId(2, 7), BatchId(2, -1)])
def test_a_write_started_before_the_fence_fails_after_it(tables: PathStore, batch: BatchId) -> None:
    table = tables.open(OFFSETS)
    begun = transaction_of(table, batch)
    Checkpoint(spark=None, root="unused", checkpoint_id=3).shut_out_older(tables)  # type: ignore[arg-type]  # a fence needs no Spark
    for write in (table.append, partial(table.replace, EVERY_ROW)):
        with pytest.raises(ConflictError, match="Concurrent transaction"):
            write([source_table(load_schema(OFFSETS), [commit(1)])], begun)


@pytest.mark.parametrize("group_id", HOSTILE)
def test_a_group_id_with_sql_is_one_group(tables: PathStore, group_id: str) -> None:
    merge(tables, OFFSETS, *(commit(1, other) for other in HOSTILE))
    merge(tables, OFFSETS, commit(2, group_id))
    assert committed(tables) == dict.fromkeys(HOSTILE, 1) | {group_id: 2}
    merge(tables, OFFSETS, commit(3, group_id) | {DELETED: True})
    assert committed(tables).keys() == set(HOSTILE) - {group_id}


@pytest.mark.parametrize("wanted", [None, "", "null"])
@pytest.mark.parametrize("column", ["subtopology_id", "topic_id", "topic"])
def test_null_in_a_key_is_a_value_of_its_own(tables: PathStore, column: str, wanted: str | None) -> None:
    def assignment(value: str | None, epoch: int) -> Row:
        place = {"offsets_partition": 1, "group_id": "", "member_id": "", "kind": "assigned", "partition": 0}
        return place | {column: value, "assignment_epoch": epoch}

    values: list[str | None] = [None, *HOSTILE]
    merge(tables, ASSIGNMENTS, *(assignment(value, 1) for value in values))
    merge(tables, ASSIGNMENTS, assignment(wanted, 2))
    found = {row[column]: row["assignment_epoch"] for row in rows(tables, ASSIGNMENTS)}
    assert found == dict.fromkeys(values, 1) | {wanted: 2}
    merge(tables, ASSIGNMENTS, assignment(wanted, 3) | {DELETED: True})
    assert {row[column] for row in rows(tables, ASSIGNMENTS)} == set(values) - {wanted}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("name", "newer_only"), [(OFFSETS, True), ("group_cells", True), (ASSIGNMENTS, False)])
def test_random_merges_equal_those_of_a_dictionary(tables: PathStore, name: str, newer_only: bool, seed: int) -> None:
    schema = load_schema(name)
    model, most = MergeModel(schema, newer_only), 0
    for step in random_steps(Random(seed), schema, 12):
        for _ in range(2):  # each merge is repeated
            source, how = source_table(schema, step.rows), step.merge(schema, newer_only=newer_only)
            merge_on_driver(tables, source, how, step.batch)
            model.apply(step)
        assert rows(tables, name) == in_order(model.rows.values())
        most = max(most, len(model.rows))
    assert most > 10
