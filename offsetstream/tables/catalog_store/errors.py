"""What Spark and Delta raise, in our words."""

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

# By the exceptions' names: what they print has frames of ConcurrentHashMap and the like.
_CONFLICT = re.compile(r"DELTA_CONCURRENT|Concurrent\w*Exception")


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


def is_conflict(error: BaseException) -> bool:
    """Tell whether an error of Spark's is a conflict of commits."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "DeltaConcurrentModificationException" in kinds:
        return True
    said = str(error)
    return bool(kinds & {"PySparkException", "Py4JJavaError"}) and _CONFLICT.search(said) is not None


def parts_told(parts: Iterable[Part], table: str) -> Iterator[Part]:
    """Yield the parts that Spark reads as they are asked for; errors as of `told`."""
    with told(table):
        yield from parts
