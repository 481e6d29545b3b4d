"""Tasks replace rows and the driver merges rows: together as a dictionary does (testkit/merge_model.py)."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from offsetstream.tables.matching import merge_on_driver
from offsetstream.tables.schema import DELETED, load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.sql import in_partitions
from offsetstream.tables.write import TableWriter
from testkit.merge_model import MergeModel, in_order, random_steps, source_table
from testkit.tables import new_tables
from testkit.task_rows import from_tasks

STEPS = 8


@pytest.mark.parametrize(
    ("name", "newer_only", "seed"),
    [("committed_offsets", True, 2), pytest.param("member_assignments", False, 4, marks=pytest.mark.long)],
)
def test_replacements_and_merges_equal_a_dictionary(
    spark: SparkSession, tmp_path: Path, name: str, newer_only: bool, seed: int
) -> None:
    schema, tables, replaced = load_schema(name), new_tables(tmp_path), 0
    model, writer = MergeModel(schema, newer_only), TableWriter(spark, tables)
    for step in random_steps(Random(seed), schema, STEPS):
        model.apply(step)
        source = source_table(schema, step.rows)
        for _ in range(2):
            if step.only:
                kept = source.filter(pc.invert(source[DELETED])).drop_columns(DELETED)
                parts = [kept.slice(0, 2), kept.slice(2)]
                new = from_tasks(tables, name, parts, step.batch)
                writer.replace({name: new}, step.batch, in_partitions(step.only))
                replaced += kept.num_rows
            else:
                merge_on_driver(tables, source, step.merge(schema, newer_only=newer_only), step.batch)
            assert in_order(read_rows(tables.open(name))) == in_order(model.rows.values())
    assert replaced > 10
