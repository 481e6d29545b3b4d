"""What delta-rs raises, in our words."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from offsetstream.errors import ConflictError, NoTableError, TablesError

Part = TypeVar("Part")
_COLOUR = re.compile(r"\x1b\[\d*m")
_ANSWER = re.compile(r"<Code>(.+?)</Code>\s*<Message>(.+?)</Message>", re.DOTALL)  # of S3 and Azure
_MOST = 400  # letters
REACH = "delta-rs takes the store's address, region and credentials from the environment (docs/how-to/stores.md)"


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
        if isinstance(error, OSError) and "://" in table:
            raise TablesError(f"cannot {what} the table {table}: {reason(error)}: {REACH}") from error
        # Arrow's, where a file cannot be read: by the name of the module, which a look by DuckDB does not import.
        if not isinstance(error, DeltaError) and not type(error).__module__.startswith("pyarrow"):
            raise
        raise in_our_words(error, table, what) from error


def in_our_words(error: Exception, table: str, what: str) -> TablesError:
    """Return the error that the callers of a store know."""
    if isinstance(error, CommitFailedError) or _is_vacuumed(error):
        return ConflictError(f"the table {table} was written to meanwhile: {error}")
    return TablesError(f"cannot {what} the table {table}: {reason(error)}")


def reason(error: Exception) -> str:
    """Return in one line what delta-rs says on many, the last of which is the cause; for a terminal, some of it."""
    if answer := _ANSWER.search(str(error)):
        return ": ".join(answer.groups())
    lines = (line.strip(" ↳") for line in _COLOUR.sub("", str(error)).splitlines())
    told = ": ".join(line for line in lines if line)
    return textwrap.shorten(told, _MOST, placeholder=" ...") or type(error).__name__


def _is_vacuumed(error: Exception) -> bool:
    """Tell whether a file was gone that the table had when it was opened: somebody compacted it and ran VACUUM."""
    return "Object at location" in str(error) and "not found" in str(error)


def parts_told(parts: Iterable[Part], table: str) -> Iterator[Part]:
    """Yield the parts that delta-rs reads as they are asked for; errors as of `told`."""
    with told(table):
        yield from parts
