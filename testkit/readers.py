"""Each engine that README names, asked for the rows of a table that have a text: all of them must answer alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

from offsetstream.tables.lookup import Lookup
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import load_schema
from offsetstream.tables.sql import sql_text

Reader = Callable[[str, str, str], int]  # path, column and text: how many rows


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
    """Our own commands, of tables that are named by a URI."""
    root, table = path.rsplit("/", 1)
    return len(Lookup(PathStore(Path(root).as_uri())).rows(table, [column], {column: [text]}))


READERS: tuple[Reader, ...] = (by_duckdb, by_pyarrow, by_polars, by_delta_rs, by_look_up)


def require_that_all_read(tables: PathStore, table: str, *others: Reader) -> int:
    """Filter each text column by each of its values, in each engine; returns how many rows the table has."""
    path = tables.table(table)
    rows = pa.table(QueryBuilder().register("rows", DeltaTable(path)).execute("SELECT * FROM rows")).to_pylist()
    for column in load_schema(table).columns:
        values: list[Any] = [row[column.name] for row in rows if row[column.name] is not None]
        if column.type == "STRING" and values:
            text = max(values)
            found = {reader.__name__: reader(path, column.name, text) for reader in (*READERS, *others)}
            assert set(found.values()) == {values.count(text)}, (table, column.name, text, found)
    return len(rows)
