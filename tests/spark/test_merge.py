"""Spark and delta-rs merge alike: taking turns, they give the same as a dictionary (testkit/merge_model.py)."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from offsetstream.stream.partitions.checkpoint import Checkpoint
from offsetstream.tables.merge import DELETED, merge_on_driver
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import TableSchema, load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.transaction import BatchId, transaction_of
from testkit.merge_model import MergeModel, Row, Step, in_order, random_steps, source_table
from testkit.tables import new_tables

STEPS = 6


class Merger:
    """A table and both ways to merge into it."""

    def __init__(self, spark: SparkSession, folder: Path, schema: TableSchema, *, newer_only: bool) -> None:
        self.schema = schema
        self.tables: PathStore = new_tables(folder)
        self._newer_only = newer_only
        self._spark = spark
        self._in_spark = self.tables.in_spark(spark)

    def by_spark(self, step: Step) -> None:
        source = self._spark.createDataFrame(source_table(self.schema, step.rows))
        transaction = transaction_of(self.tables.open(self.schema.name), step.batch)
        self._in_spark.merge(source, step.merge(self.schema, newer_only=self._newer_only), transaction)

    def by_delta_rs(self, step: Step) -> None:
        merge = step.merge(self.schema, newer_only=self._newer_only)
        merge_on_driver(self.tables, source_table(self.schema, step.rows), merge, step.batch)

    def rows(self) -> list[Row]:
        return in_order(read_rows(self.tables.open(self.schema.name)))


@pytest.mark.parametrize(
    ("name", "newer_only"),
    [("committed_offsets", True), pytest.param("member_assignments", False, marks=pytest.mark.long)],
)
def test_both_ways_merge_like_a_dictionary_and_repeat_each_others_merges(
    spark: SparkSession, tmp_path: Path, name: str, newer_only: bool
) -> None:
    schema = load_schema(name)
    model, most = MergeModel(schema, newer_only), 0
    merger = Merger(spark, tmp_path, schema, newer_only=newer_only)
    for number, step in enumerate(random_steps(Random(name), schema, STEPS)):
        model.apply(step)
        first, second = (merger.by_delta_rs, merger.by_spark) if number % 2 else (merger.by_spark, merger.by_delta_rs)
        for merge in (first, second):
            merge(step)
            assert merger.rows() == in_order(model.rows.values())
        most = max(most, len(model.rows))
    assert most > 10


def test_a_batch_is_merged_once_whichever_way_comes_first(spark: SparkSession, tmp_path: Path) -> None:
    schema = load_schema("groups")
    merger = Merger(spark, tmp_path, schema, newer_only=False)

    def state(text: str, number: int) -> Step:
        row = dict.fromkeys(schema.column_names) | {"offsets_partition": 1, "group_id": "g", "state": text}
        return Step([row | {DELETED: False}], BatchId(1, number))

    def states() -> list[str]:
        return [row["state"] for row in merger.rows()]

    merger.by_spark(state("Stable", 0))
    merger.by_delta_rs(state("Empty", 0))
    assert states() == ["Stable"]
    merger.by_delta_rs(state("Empty", 1))
    merger.by_spark(state("Dead", 1))
    merger.by_spark(state("Dead", 0))
    assert states() == ["Empty"]
    Checkpoint(spark, "unused", 2).shut_out_older(merger.tables)
    merger.by_spark(state("Dead", 2))
    assert states() == ["Empty"]
