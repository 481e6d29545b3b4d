"""Fetched rows equal those that DuckDB returns itself, except for the time zone."""

from __future__ import annotations

from datetime import UTC, datetime

import duckdb
import pytest

from offsetstream.tables.lookup import fetch_rows, open_connection

_VALUES = """
SELECT TIMESTAMPTZ '2026-11-23 03:00:00.123456+01' AS "an instant", 1 AS number, 'x' AS text,
       [TIMESTAMPTZ '2026-11-23 03:00:00+00'] AS list, TIMESTAMP '2026-11-23 03:00:00' AS bare
UNION ALL SELECT NULL, NULL, NULL, NULL, NULL
UNION ALL SELECT TIMESTAMPTZ '0001-01-01 00:00:00+00', 2, '', [], TIMESTAMP '9999-12-31 23:59:59.999999'
UNION ALL SELECT TIMESTAMPTZ '10000-01-01 00:00:00+00', 3, 'y', NULL, NULL
"""


@pytest.fixture(params=["UTC", "Europe/Berlin"])
def connection(request: pytest.FixtureRequest) -> duckdb.DuckDBPyConnection:
    connection = open_connection()
    connection.execute(f"SET TimeZone = '{request.param}'")
    return connection


def test_rows_equal_those_of_duckdb_with_times_in_utc(connection: duckdb.DuckDBPyConnection) -> None:
    relation = connection.sql(_VALUES)
    rows = fetch_rows(relation, "number NULLS LAST")
    expected = [dict(zip(relation.columns, row, strict=True)) for row in relation.order("number NULLS LAST").fetchall()]
    for row in expected:
        if row["number"] == 3:  # Python does not support this year: DuckDB returns text
            row["an instant"] = "10000-01-01 00:00:00"
    assert rows == expected
    assert rows[0]["an instant"] == datetime(2026, 11, 23, 2, 0, 0, 123456, tzinfo=UTC)
    assert {row["an instant"].tzinfo for row in rows if isinstance(row["an instant"], datetime)} == {UTC}


def test_a_large_result_keeps_its_order(connection: duckdb.DuckDBPyConnection) -> None:
    relation = connection.sql("SELECT to_timestamp(i * 7919 % 1000003) AS moment, i FROM range(300000) AS t(i)")
    rows = fetch_rows(relation, "moment DESC, i")
    assert [row["moment"] for row in rows] == sorted((row["moment"] for row in rows), reverse=True)
    assert len(rows) == 300000


def test_rows_without_timestamps(connection: duckdb.DuckDBPyConnection) -> None:
    assert fetch_rows(connection.sql("FROM (VALUES (2, 'b'), (1, 'a')) AS t(n, x)"), "n") == [
        {"n": 1, "x": "a"},
        {"n": 2, "x": "b"},
    ]
