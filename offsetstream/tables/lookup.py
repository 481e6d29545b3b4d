"""Quick looks into the tables without Spark: delta-rs finds a table's files, DuckDB reads them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from duckdb import ColumnExpression, ConstantExpression, FunctionExpression

from offsetstream.errors import TablesError, first_line
from offsetstream.tables.location import TablesLocation, is_utf8
from offsetstream.tables.version import refuse_newer

Row = dict[str, Any]
Where = Mapping[str, Collection[str] | Collection[int] | None]  # column: the values wanted

_GLOB = re.compile(r"[*?\[]")
# DuckDB must not look for extensions on the network; what it needs here is built in.
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


class Lookup:
    """Reads rows of the tables at ``location``, each table at its version of the moment it is first read."""

    def __init__(self, location: TablesLocation) -> None:
        self.location = location
        self._connection = duckdb.connect(config=_CONFIG)
        self._relations: dict[str, duckdb.DuckDBPyRelation | None] = {}

    def rows(
        self, table: str, columns: Sequence[str], where: Where | None = None, *, distinct: bool = False
    ) -> list[Row]:
        """Return the named columns of the rows whose columns in ``where`` have one of the given values.

        None instead of values means all rows. The time of a TIMESTAMP column x is read as x_ms, milliseconds
        since 1970. Raises TablesError if the table is not there or cannot be read.
        """
        try:
            relation = self._relation(table)
            if relation is None:
                return []
            for column, values in (where or {}).items():
                if values is not None:
                    relation = relation.filter(_is_one_of(column, values))
            relation = relation.select(*(_expression(column, relation.columns) for column in columns))
            found = (relation.distinct() if distinct else relation).fetchall()
        except (DeltaError, duckdb.Error, OSError) as error:
            reason = first_line(error)
            raise TablesError(f"cannot read the table {self.location.table(table)}: {reason}") from error
        return [dict(zip(columns, row, strict=True)) for row in found]

    def _relation(self, table: str) -> duckdb.DuckDBPyRelation | None:
        if table not in self._relations:
            self._relations[table] = self._open(table)
        return self._relations[table]

    def _open(self, table: str) -> duckdb.DuckDBPyRelation | None:
        path = self.location.table(table)
        try:
            delta = DeltaTable(path)
        except TableNotFoundError as error:
            raise TablesError(
                f"there is no table {path}: name the folder of the tables by --tables, "
                "or make them by 'offsetstream run'"
            ) from error
        refuse_newer(delta)
        if "://" in path:  # delta-rs reaches stores that DuckDB has no built-in way to
            return self._connection.from_arrow(delta.to_pyarrow_dataset())
        # delta-rs gives paths as a URL has them, and DuckDB takes them as patterns.
        files = [_GLOB.sub(r"[\g<0>]", unquote(file)) for file in delta.file_uris()]
        # Files from before a column was added lack it.
        return self._connection.from_parquet(files, union_by_name=True) if files else None


def _is_one_of(column: str, values: Collection[str] | Collection[int]) -> duckdb.Expression:
    # What is not UTF-8, as a command line may be, is in no table.
    possible = [value for value in values if not isinstance(value, str) or is_utf8(value)]
    if not possible:
        return ConstantExpression(False)
    return ColumnExpression(column).isin(*(ConstantExpression(value) for value in possible))


def _expression(column: str, existing: Sequence[str]) -> duckdb.Expression:
    if column in existing:
        return ColumnExpression(column)
    return FunctionExpression("epoch_ms", ColumnExpression(column.removesuffix("_ms"))).alias(column)
