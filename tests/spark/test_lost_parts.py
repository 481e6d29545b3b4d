"""A part that Spark lost is recognised as such, on a real Spark; a fault of our code is not taken for one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from offsetstream.cluster.client import Cluster
from offsetstream.errors import LostPartError
from offsetstream.spark.failures import explain_failure
from offsetstream.stream.records import ON_DISK

CLUSTER = Cluster("127.0.0.1:1")  # nobody is asked
ALL = sum(range(1000))


def passed_on(batches: Iterable[Any]) -> Iterator[Any]:
    yield from batches


def killed(batches: Iterable[Any]) -> Iterator[Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    yield from batches


def failing(batches: Iterable[Any]) -> Iterator[Any]:
    for _ in batches:
        raise ValueError("a fault of our code")
    yield from ()


def rows(spark: SparkSession, task: Callable[[Iterable[Any]], Iterator[Any]] = passed_on) -> DataFrame:
    return spark.range(0, 1000, 1, 4).mapInArrow(task, "id long")


def total(frame: DataFrame) -> int:
    (row,) = frame.groupBy().sum("id").collect()
    return int(row[0])


def block_folders(spark: SparkSession) -> list[Path]:
    java: Any = spark.sparkContext._jvm
    disk = java.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
    return [Path(folder.getPath()) for folder in disk.localDirs()]


def spilled(spark: SparkSession, pattern: str) -> list[Path]:
    return [file for folder in block_folders(spark) for file in folder.rglob(pattern)]


@contextmanager
def persisted(spark: SparkSession) -> Iterator[DataFrame]:
    """Rows that Spark keeps in files, as it does with those of a batch."""
    frame = rows(spark).persist(ON_DISK)
    try:
        yield frame
    finally:
        frame.unpersist(blocking=True)


def test_killed_python_worker_is_a_lost_part(spark: SparkSession) -> None:
    with pytest.raises(LostPartError, match="A Python worker of Spark was killed or crashed"), explain_failure(CLUSTER):
        total(rows(spark, killed))
    assert total(rows(spark)) == ALL


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"")], ids=["removed", "emptied"])
def test_lost_temporary_file_is_a_lost_part(spark: SparkSession, damage: Callable[[Path], None]) -> None:
    with persisted(spark) as frame:
        assert total(frame) == ALL
        files = spilled(spark, "rdd_*")
        assert files
        for file in files:
            damage(file)
        words = "A temporary file of Spark was removed or damaged"
        with pytest.raises(LostPartError, match=words), explain_failure(CLUSTER):
            total(frame)


def test_spark_writes_lost_shuffle_files_again(spark: SparkSession) -> None:
    counted = spark.sparkContext.parallelize(range(1000), 4).map(lambda x: (x % 7, x)).groupByKey(3)
    assert counted.count() == 7
    for file in spilled(spark, "shuffle_*"):
        file.unlink()
    assert counted.count() == 7
    # Local Spark has now lost its block manager for good, in which it keeps a task's result of a megabyte or more.
    assert spark.range(10).selectExpr("repeat('v', 1000000) AS v").toArrow().nbytes > 10_000_000


def test_lost_result_of_a_task_is_a_lost_part() -> None:
    """It is not caused here: our own Spark returns no result by its block manager."""
    failure = PySparkException("Lost task 0.0 in stage 4.0 (TID 17): TaskResultLost (result lost from block manager)")
    with pytest.raises(LostPartError, match="The result of a task of Spark was lost"), explain_failure(CLUSTER):
        raise failure


def test_fault_of_our_code_is_no_lost_part(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="a fault of our code"), explain_failure(CLUSTER):
        total(rows(spark, failing))
