"""Every view on both engines: Spark and DuckDB give equal rows of random valid tables."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from offsetstream.views.files import View, all_views
from testkit.group_world import GroupWorld
from testkit.sampled_logs import instant
from testkit.view_tables import clock_sql, reader_of, table_schemas, write_tables

_TYPES = {
    "string": "STRING",
    "int": "INT",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMP",
}
_QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_MAY_LACK = {"last_deletions", "orphan_offsets", "coordinator_moves"}


@pytest.mark.parametrize("seed", range(1, 13))
def test_both_engines_give_equal_rows(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    world = GroupWorld(seed, groups=8, minutes=16)
    write_tables(tmp_path, world.rows)
    now, at = instant(world.now_ms), instant(world.now_ms - 5 * 60_000 - seed)
    reader = reader_of(tmp_path, now)
    session = _session(spark, tmp_path)
    lacking = []
    for view in all_views().values():
        frame = session.sql(_sql(view, now), args={"at": at} if view.is_at else None)
        columns = [(field.name, _TYPES[field.dataType.simpleString()]) for field in frame.schema.fields]
        assert columns == [(column.name, column.type) for column in view.columns], view.name
        found = frame.collect()
        session.createDataFrame(found, frame.schema).createOrReplaceTempView(view.name)  # for those that read it
        of_spark = _ordered([row.asDict() for row in found])
        of_duckdb = _ordered(reader.rows(view.name, at=at if view.is_at else None))
        assert len(of_spark) == len(of_duckdb), view.name
        for one, other in zip(of_spark, of_duckdb, strict=True):
            assert _is_equal(one, other), (view.name, one, other)
        if not of_spark:
            lacking.append(view.name)
    assert set(lacking) <= _MAY_LACK


def _session(spark: SparkSession, folder: Path) -> SparkSession:
    """A session with the tables, which compiles nothing: so little is quicker without."""
    session = spark.newSession()
    for name, value in _QUICK.items():
        session.conf.set(name, value)
    for table in table_schemas():
        session.read.parquet(str(folder / f"{table}.parquet")).createOrReplaceTempView(table)
    return session


def _sql(view: View, now: datetime) -> str:
    return clock_sql(now) if view.name == "clock" else view.spark_sql


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
