"""Translate errors of Spark and Delta to ours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from offsetstream.errors import ConflictError, NoTableError, TablesError, first_line

Part = TypeVar("Part")
_NO_TABLE = {"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE"}

# Full names of exceptions only: stack traces also contain names such as ConcurrentHashMap.
_CONFLICT = re.compile(r"DELTA_CONCURRENT|Concurrent\w*Exception")


@contextmanager
def translated_errors(table: str, what: str = "read") -> Iterator[None]:
    """Translate Spark's errors about this table to NoTableError, ConflictError or TablesError."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise tables_error(error, table, what) from error


def tables_error(error: PySparkException | Py4JJavaError, table: str, what: str) -> TablesError:
    """Return the error that callers of a store expect."""
    if is_conflict(error):
        return ConflictError(f"the table {table} was written to meanwhile: {first_line(error)}")
    if isinstance(error, PySparkException) and error.getCondition() in _NO_TABLE:
        return NoTableError(
            f"there is no table {table}: name the catalog and schema of the tables with --tables, or create them with "
            "'offsetstream run'"
        )
    cause = error.java_exception if isinstance(error, Py4JJavaError) else error
    return TablesError(f"cannot {what} the table {table}: {first_line(cause)}")


def is_conflict(error: BaseException) -> bool:
    """Return whether a Spark error is a conflict of commits."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "DeltaConcurrentModificationException" in kinds:
        return True
    return bool(kinds & {"PySparkException", "Py4JJavaError"}) and _CONFLICT.search(str(error)) is not None


def translated_parts(parts: Iterable[Part], table: str) -> Iterator[Part]:
    """Yield the parts, which Spark reads on demand, and translate errors like `translated_errors`."""
    with translated_errors(table):
        yield from parts
