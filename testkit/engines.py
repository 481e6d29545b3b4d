"""The engines that read our tables and views: all must give the same answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import DataFrame, SparkSession

from offsetstream.tables.lookup import Lookup
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import load_schema
from offsetstream.tables.sql import sql_text
from offsetstream.views.files import View, all_views
from offsetstream.views.reader import ViewReader
from testkit.tables import clock_sql

Reader = Callable[[str, str, str], int]  # path, column and text to number of rows


def by_duckdb(path: str, column: str, text: str) -> int:
    rows = DeltaTable(path).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        found = connection.from_arrow(rows).filter(f'"{column}" = {sql_text(text)}')
        return len(found.fetchall())


def by_pyarrow(path: str, column: str, text: str) -> int:
    return int(DeltaTable(path).to_pyarrow_dataset().count_rows(filter=pc.field(column) == text))


def by_polars(path: str, column: str, text: str) -> int:
    return polars.scan_delta(path).filter(polars.col(column) == text).collect().height


def by_delta_rs(path: str, column: str, text: str) -> int:
    query = f'SELECT * FROM rows WHERE "{column}" = {sql_text(text)}'  # noqa: S608 - a test's own
    return int(pa.table(QueryBuilder().register("rows", DeltaTable(path)).execute(query)).num_rows)


def by_look_up(path: str, column: str, text: str) -> int:
    """Our own commands, with the tables at a URI."""
    root, table = path.rsplit("/", 1)
    store = PathStore(root if "://" in root else Path(root).as_uri())
    return len(Lookup(store).rows(table, [column], {column: [text]}))


READERS: tuple[Reader, ...] = (by_duckdb, by_pyarrow, by_polars, by_delta_rs, by_look_up)


def require_that_all_read(tables: PathStore, table: str, *others: Reader) -> int:
    """Filter each text column by its greatest value in each engine. Return the number of rows of the table."""
    path = tables.table(table)
    rows = pa.table(QueryBuilder().register("rows", DeltaTable(path)).execute("SELECT * FROM rows")).to_pylist()
    for column in load_schema(table).columns:
        values: list[Any] = [row[column.name] for row in rows if row[column.name] is not None]
        if column.type == "STRING" and values:
            text = max(values)
            found = {reader.__name__: reader(path, column.name, text) for reader in (*READERS, *others)}
            assert set(found.values()) == {values.count(text)}, (table, column.name, text, found)
    return len(rows)


Row = dict[str, Any]
_TYPES = {
    "string": "STRING",
    "int": "INT",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMP",
}
# With so few rows, Spark is faster without compilation.
_QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class BothEngines:
    """Spark, with the tables as temporary views, and DuckDB's reader, both at the time `now`."""

    def __init__(self, spark: SparkSession, tables: Mapping[str, DataFrame], reader: ViewReader, now: datetime) -> None:
        self._session, self._reader, self._now = spark.newSession(), reader, now
        for name, value in _QUICK.items():
            self._session.conf.set(name, value)
        for name, frame in tables.items():
            # A temporary view belongs to the session of its frame, so the rows move to this session.
            self._session.createDataFrame(frame.toArrow(), frame.schema).createOrReplaceTempView(name)

    def all(self, at: datetime) -> dict[str, list[Row]]:
        """Return the rows of all views, with times in microseconds since 1970; AssertionError if the engines differ."""
        return {view.name: self.view(view, at) for view in all_views().values()}

    def view(self, view: View, at: datetime) -> list[Row]:
        """Return the rows of one view; call this for the views that it reads first."""
        frame = self._session.sql(_sql(view, self._now), args={"at": at} if view.is_at else None)
        columns = [(field.name, _TYPES[field.dataType.simpleString()]) for field in frame.schema.fields]
        assert columns == [(column.name, column.type) for column in view.columns], view.name
        found = frame.collect()
        self._session.createDataFrame(found, frame.schema).createOrReplaceTempView(view.name)
        of_spark = _ordered([row.asDict() for row in found])
        of_duckdb = _ordered(self._reader.rows(view.name, at=at if view.is_at else None))
        assert len(of_spark) == len(of_duckdb), view.name
        for one, other in zip(of_spark, of_duckdb, strict=True):
            assert _is_equal(one, other), (view.name, one, other)
        return of_duckdb


def _sql(view: View, now: datetime) -> str:
    return clock_sql(now) if view.name == "clock" else view.spark_sql


def _ordered(rows: list[Row]) -> list[Row]:
    plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
    return sorted(plain, key=lambda row: [str(value) for value in row.values() if not isinstance(value, float)])


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        at = value.astimezone(UTC)
        return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return value


def _is_equal(one: Row, other: Row) -> bool:
    return one.keys() == other.keys() and all(
        math.isclose(value, other[name], rel_tol=1e-12)
        if isinstance(value, float) and other[name] is not None
        else value == other[name]
        for name, value in one.items()
    )
