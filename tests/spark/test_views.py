"""Every view on both engines: Spark and DuckDB give equal rows of random valid tables."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from offsetstream.views.files import View, all_views
from testkit.group_world import GroupWorld
from testkit.sampled_logs import instant
from testkit.view_tables import reader_of, table_schemas, write_tables

_TYPES = {
    "string": "STRING",
    "int": "INT",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMP",
}


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, id=f"{seed}-long") for seed in range(3, 13))])
def test_both_engines_give_equal_rows(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    world = GroupWorld(seed)
    write_tables(tmp_path, world.rows)
    now, at = instant(world.now_ms), instant(world.now_ms - 17 * 60_000 - seed)
    reader = reader_of(tmp_path, now)
    frames = _spark_views(spark.newSession(), tmp_path, now, at)
    lacking = []
    for view in all_views().values():
        columns = [(field.name, _TYPES[field.dataType.simpleString()]) for field in frames[view.name].schema.fields]
        assert columns == [(column.name, column.type) for column in view.columns], view.name
        of_spark = _ordered([row.asDict() for row in frames[view.name].collect()])
        of_duckdb = _ordered(reader.rows(view.name, at=at if view.is_at else None))
        assert len(of_spark) == len(of_duckdb), view.name
        for one, other in zip(of_spark, of_duckdb, strict=True):
            assert _is_equal(one, other), (view.name, one, other)
        if not of_spark:
            lacking.append(view.name)
    assert lacking == []


def _spark_views(spark: SparkSession, folder: Path, now: datetime, at: datetime) -> dict[str, DataFrame]:
    for table in table_schemas():
        spark.read.parquet(str(folder / f"{table}.parquet")).createOrReplaceTempView(table)
    frames = {}
    for view in all_views().values():
        frames[view.name] = spark.sql(_sql(view, now), args={"at": at} if view.is_at else None)
        frames[view.name].createOrReplaceTempView(view.name)
    return frames


def _sql(view: View, now: datetime) -> str:
    return f"SELECT TIMESTAMP '{now.isoformat()}' AS now_at" if view.name == "clock" else view.spark_sql


def _ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    told = [{name: _told(value) for name, value in row.items()} for row in rows]
    return sorted(told, key=lambda row: [str(value) for value in row.values() if not isinstance(value, float)])


def _told(value: object) -> object:
    if isinstance(value, datetime):
        at = value.astimezone(UTC)
        return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return value


def _is_equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        math.isclose(value, other[name], rel_tol=1e-12)
        if isinstance(value, float) and other[name] is not None
        else value == other[name]
        for name, value in one.items()
    )
