"""Translate delta-rs's errors to ours."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from offsetstream.errors import ConflictError, DamagedTableError, NoTableError, TablesError

_COLOUR = re.compile(r"\x1b\[\d*m")
_ANSWER = re.compile(r"<Code>(.+?)</Code>\s*<Message>(.+?)</Message>", re.DOTALL)  # from S3 and Azure
_MAX_LENGTH = 400
# A file is missing or has other contents than it should. Errors of a network do not look like this.
_SUGGESTS_DAMAGE = re.compile(
    r"(?i)parquet|not found|no such file|json error|checkpoint|commit files|kernel error|corrupt|unexpected (?:eof|end)"
    r"|input/output error"
)
REACH = "set the store's address, region and credentials in the environment for delta-rs (docs/how-to/stores.md)"


def is_remote(place: str) -> bool:
    """Return whether tables are in an object store: a URI, where a local folder has a path."""
    return "://" in place


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
            raise TablesError(f"cannot {what} the table {table}: {reason(error)}: {REACH}") from error
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
    return TablesError(f"cannot {what} the table {table}: {reason(error)}")


def reason(error: Exception) -> str:
    """Return delta-rs's message of several lines as one line, shortened for a terminal; the cause comes last."""
    if answer := _ANSWER.search(str(error)):
        return ": ".join(answer.groups())
    lines = (line.strip(" ↳") for line in _COLOUR.sub("", str(error)).splitlines())
    message = ": ".join(line for line in lines if line)
    return textwrap.shorten(message, _MAX_LENGTH, placeholder=" ...") or type(error).__name__


def _damaged(table: str) -> DamagedTableError | None:
    from offsetstream.tables.damage import damaged_table  # noqa: PLC0415 - rarely needed
    from offsetstream.tables.path_store.store import PathStore  # noqa: PLC0415 - avoids a circular import

    root, _, name = unquote(table).removeprefix("file://").rstrip("/").rpartition("/")
    return damaged_table(PathStore(root), name)


def _is_vacuumed(error: Exception) -> bool:
    """Return whether a file of the opened version no longer exists: somebody ran a compaction and VACUUM."""
    return "Object at location" in str(error) and "not found" in str(error)
