"""Every view on both engines: Spark and DuckDB return equal rows for random valid tables."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from testkit.engines import BothEngines
from testkit.group_world import GroupWorld, Rows
from testkit.sampled_logs import instant
from testkit.tables import reader_of, table_schemas, write_tables

_MAY_LACK = {"last_deletions", "orphan_offsets", "coordinator_moves"}


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 13))
def test_both_engines_give_equal_rows(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    world = GroupWorld(seed, groups=8, minutes=16, changing=2, abandons=True)
    now = instant(world.now_ms)
    _add_a_restless_group(world.rows, now)
    write_tables(tmp_path, world.rows)
    tables = {table: spark.read.parquet(str(tmp_path / f"{table}.parquet")) for table in table_schemas()}
    found = BothEngines(spark, tables, reader_of(tmp_path, now), now).all(now - timedelta(minutes=5, milliseconds=seed))
    assert {name for name, rows in found.items() if not rows} <= _MAY_LACK


def _add_a_restless_group(rows: Rows, now: datetime) -> None:
    """Add a group that rebalances every half minute, because one client keeps leaving and rejoining."""
    place = {name: rows["offsets_partitions"][0][name] for name in ("offsets_partition", "log_id")}
    place |= {"group_id": "restless"}
    for number in range(8):
        at = {"record_offset": 1_000_000 + number, "record_timestamp": now - timedelta(seconds=30 * (8 - number))}
        rows["group_history"].append(
            place | at | {"group_epoch": number, "group_type": "Consumer", "is_removed": False}
        )
        left = {"member_id": f"m{number}", "client_id": "restless", "client_host": "/10.0.0.9", "change": "left"}
        joined = left | {"member_id": f"m{number + 1}", "change": "joined", "record_offset": 1_000_100 + number}
        rows["member_history"] += [place | at | left, place | at | joined]
