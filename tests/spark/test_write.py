from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from offsetstream.errors import LeaseError
from offsetstream.spark.session import bulk_writes
from offsetstream.stream.lifecycle.checkpoint import Checkpoint
from offsetstream.tables import write
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.sql import in_partitions, sql_text
from offsetstream.tables.task_rows import TaskRows
from offsetstream.tables.transaction import BatchId, in_parallel, transaction_of
from offsetstream.tables.write import TableWriter
from testkit.task_rows import from_tasks
from testkit.waiting import SECONDS
from tests.unit.tables.small_writes import SIGNATURE

BULK = ("spark.databricks.delta.optimizeWrite.enabled", "spark.databricks.delta.autoCompact.enabled")
LOAD = BatchId(2, -1)
OF_PARTITION_1 = "offsets_partition IN (1)"


def test_a_bulk_append_leaves_the_settings_as_they_were(spark: SparkSession) -> None:
    spark.conf.set(BULK[0], "true")
    try:
        with pytest.raises(ValueError, match="of the load"), bulk_writes(spark):
            assert [spark.conf.get(name) for name in BULK] == ["false", "false"]
            raise ValueError("of the load")
        assert [spark.conf.get(name, None) for name in BULK] == ["true", None]
    finally:
        spark.conf.unset(BULK[0])


@pytest.mark.parametrize("batch", [BatchId(2, 5), LOAD])
def test_a_write_of_tasks_started_before_the_fence_does_not_commit_after_it(
    spark: SparkSession, writer: TableWriter, tables: PathStore, monkeypatch: pytest.MonkeyPatch, batch: BatchId
) -> None:
    def made(name: str) -> dict[str, TaskRows]:
        columns = [field for field in load_schema(name).arrow if field.name not in SIGNATURE]
        row = dict.fromkeys(field.name for field in columns) | {"offsets_partition": 1, "log_id": 0, "record_offset": 1}
        return {name: from_tasks(tables, name, [pa.Table.from_pylist([row], pa.schema(columns))], batch)}

    def both() -> None:
        writer.replace(made("groups"), batch, OF_PARTITION_1)
        writer.append(made("group_records"), batch)

    begun = {name: transaction_of(tables.open(name), batch) for name in ("groups", "group_records")}
    Checkpoint(spark, "unused", 3).shut_out_older(tables)
    with monkeypatch.context() as patch:
        patch.setattr(write, "transaction_of", lambda table, _batch: begun[table.name])
        both()
    if batch.is_load:
        with pytest.raises(LeaseError, match="taken over"):
            both()
    assert not read_rows(tables.open("groups"))
    assert not read_rows(tables.open("group_records"))


@pytest.mark.parametrize("in_sparks_threads", [True, False])
def test_steps_run_in_parallel_and_all_end_before_an_error_is_raised(
    spark: SparkSession, in_sparks_threads: bool
) -> None:
    in_thread = inheritable_thread_target(spark) if in_sparks_threads else lambda step: step
    barrier, ended = threading.Barrier(3, timeout=SECONDS), list[str]()

    def step(name: str) -> None:
        barrier.wait()  # no step can finish alone
        if name == "bad":
            raise ValueError("of a step")
        ended.append(name)

    with pytest.raises(ValueError, match="of a step"):
        in_parallel([lambda: step("bad"), lambda: step("one"), lambda: step("two")], in_thread)
    assert sorted(ended) == ["one", "two"]


def test_one_step_or_no_step() -> None:
    threads = list[threading.Thread]()
    in_parallel([lambda: threads.append(threading.current_thread())])
    in_parallel([])
    assert threads == [threading.current_thread()]


def test_a_condition_means_the_same_to_spark_and_to_the_driver(
    spark: SparkSession, tables: PathStore, writer: TableWriter
) -> None:
    groups = ["", "a", "it's", "''", 'a "b"', "a\\b", "\\", "%_", "`", "a\nb", "\\n", "日本 😀"]
    rows = [{"offsets_partition": number, "group_id": group} for number, group in enumerate(groups)]
    tables.open("groups").append([pa.Table.from_pylist(rows)])
    wheres = [f"group_id = {sql_text(group)}" for group in groups] + [in_partitions([number]) for number in range(12)]
    found = writer.rows("groups").select("group_id", F.array(*map(F.expr, wheres)).alias("holds")).collect()
    table = tables.open("groups")
    for number, (where, group) in enumerate(zip(wheres, groups * 2, strict=True)):
        assert [row.group_id for row in found if row.holds[number]] == [group]
        assert [row["group_id"] for row in read_rows(table, where)] == [group]


def test_tasks_compute_rows_that_the_driver_commits(
    spark: SparkSession, writer: TableWriter, tables: PathStore
) -> None:
    given = spark.createDataFrame([(number % 3, f"g{number}") for number in range(40)], _GIVEN).repartition(4)
    with writer.computed(given, _groups_of, ["groups", "group_members"], LOAD) as found:
        assert (found["groups"].count, found["group_members"].count) == (40, 0)
        assert len(found["groups"].files) in range(2, 5)
        writer.replace(found, LOAD, OF_PARTITION_1 + " OR offsets_partition <> 1")
    rows = [(row["offsets_partition"], row["group_id"]) for row in read_rows(tables.open("groups"))]
    assert sorted(rows) == sorted((number % 3, f"g{number}") for number in range(40))


_GIVEN = "offsets_partition int, group_id string"


def _groups_of(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, pa.Table]]:
    for batch in batches:
        schema = load_schema("groups").arrow
        yield {"groups": pa.Table.from_pylist(batch.to_pylist(), schema)}
