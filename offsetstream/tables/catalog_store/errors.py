"""What Spark and Delta raise, in our words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from offsetstream.errors import ConflictError, NoTableError, TablesError, first_line
from offsetstream.tables.spark_conflicts import is_conflict

Part = TypeVar("Part")
_NO_TABLE = {"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE"}


@contextmanager
def told(table: str, what: str = "read") -> Iterator[None]:
    """Raise NoTableError, ConflictError or TablesError for what Spark raises of the table of this name."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise in_our_words(error, table, what) from error


def in_our_words(error: PySparkException | Py4JJavaError, table: str, what: str) -> TablesError:
    """Return the error that the callers of a store know."""
    if is_conflict(error):
        return ConflictError(f"the table {table} was written to meanwhile: {first_line(error)}")
    if isinstance(error, PySparkException) and error.getCondition() in _NO_TABLE:
        return NoTableError(
            f"there is no table {table}: name the catalog and schema of the tables by --tables, or make them by "
            "'offsetstream run'"
        )
    said = error.java_exception if isinstance(error, Py4JJavaError) else error
    return TablesError(f"cannot {what} the table {table}: {first_line(said)}")


def parts_told(parts: Iterable[Part], table: str) -> Iterator[Part]:
    """Yield the parts that Spark reads as they are asked for; errors as of `told`."""
    with told(table):
        yield from parts
