"""Every view on both engines: Spark and DuckDB give equal rows of random valid tables."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from testkit.engines import BothEngines
from testkit.group_world import GroupWorld
from testkit.sampled_logs import instant
from testkit.tables import reader_of, table_schemas, write_tables

_MAY_LACK = {"last_deletions", "orphan_offsets", "coordinator_moves"}


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 13))
def test_both_engines_give_equal_rows(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    world = GroupWorld(seed, groups=8, minutes=16, changing=2)
    write_tables(tmp_path, world.rows)
    now = instant(world.now_ms)
    tables = {table: spark.read.parquet(str(tmp_path / f"{table}.parquet")) for table in table_schemas()}
    found = BothEngines(spark, tables, reader_of(tmp_path, now), now).all(now - timedelta(minutes=5, milliseconds=seed))
    assert {name for name, rows in found.items() if not rows} <= _MAY_LACK
