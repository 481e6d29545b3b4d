"""Translate delta-rs's errors to ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import unquote

from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from offsetstream.errors import ConflictError, DamagedTableError, NoTableError, TablesError, one_line
from offsetstream.settings.places import is_remote

# A file is missing or has other contents than it should. Errors of a network do not look like this.
_SUGGESTS_DAMAGE = re.compile(
    r"(?i)parquet|not found|no such file|json error|checkpoint|commit files|kernel error|corrupt|unexpected (?:eof|end)"
    r"|input/output error"
)
REACH = "set the store's address, region and credentials in the environment for delta-rs (docs/how-to/stores.md)"


@contextmanager
def translated_errors(table: str, what: str = "read") -> Iterator[None]:
    """Translate delta-rs's errors about this table to NoTableError, ConflictError or TablesError."""
    try:
        yield
    except TableNotFoundError as error:
        raise NoTableError(
            f"there is no table {table}: name the folder of the tables with --tables, or create them with "
            "'offsetstream run'"
        ) from error
    except Exception as error:
        if isinstance(error, OSError) and is_remote(table):
            raise TablesError(f"cannot {what} the table {table}: {one_line(error)}: {REACH}") from error
        # Arrow raises its own errors for unreadable files. Compare names, because look-ups do not import Arrow.
        if not isinstance(error, DeltaError) and not type(error).__module__.startswith("pyarrow"):
            raise
        raise tables_error(error, table, what) from error


def tables_error(error: Exception, table: str, what: str) -> TablesError:
    """Return the error that callers of a store expect."""
    is_conflict = isinstance(error, CommitFailedError)
    if not is_conflict and _SUGGESTS_DAMAGE.search(str(error)) and (damaged := _damaged(table)) is not None:
        return damaged
    if is_conflict or _is_vacuumed(error):
        return ConflictError(f"the table {table} was written to meanwhile: {error}")
    return TablesError(f"cannot {what} the table {table}: {one_line(error)}")


def _damaged(table: str) -> DamagedTableError | None:
    from offsetstream.tables.path_store.damage import PathFolder  # noqa: PLC0415 - rarely needed, and of Arrow

    root, _, name = unquote(table).removeprefix("file://").rstrip("/").rpartition("/")
    with suppress(Exception):  # the error that led here is told then
        return PathFolder(root, name).damaged()
    return None


def _is_vacuumed(error: Exception) -> bool:
    """Return whether a file of the opened version no longer exists: somebody ran a compaction and VACUUM."""
    return "Object at location" in str(error) and "not found" in str(error)
