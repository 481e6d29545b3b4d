"""What delta-rs raises, in our words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from offsetstream.errors import ConflictError, NoTableError, TablesError, first_line

Part = TypeVar("Part")


@contextmanager
def told(table: str, what: str = "read") -> Iterator[None]:
    """Raise NoTableError, ConflictError or TablesError for what delta-rs raises of the table at this path."""
    try:
        yield
    except TableNotFoundError as error:
        raise NoTableError(
            f"there is no table {table}: name the folder of the tables by --tables, or make them by 'offsetstream run'"
        ) from error
    except Exception as error:
        # Arrow's, where a file cannot be read: by the name of the module, which a look by DuckDB does not import.
        if not isinstance(error, DeltaError) and not type(error).__module__.startswith("pyarrow"):
            raise
        raise in_our_words(error, table, what) from error


def in_our_words(error: Exception, table: str, what: str) -> TablesError:
    """Return the error that the callers of a store know."""
    if isinstance(error, CommitFailedError) or _is_vacuumed(error):
        return ConflictError(f"the table {table} was written to meanwhile: {error}")
    return TablesError(f"cannot {what} the table {table}: {first_line(error)}")


def _is_vacuumed(error: Exception) -> bool:
    """Tell whether a file was gone that the table had when it was opened: somebody compacted it and ran VACUUM."""
    return "Object at location" in str(error) and "not found" in str(error)


def parts_told(parts: Iterable[Part], table: str) -> Iterator[Part]:
    """Yield the parts that delta-rs reads as they are asked for; errors as of `told`."""
    with told(table):
        yield from parts
