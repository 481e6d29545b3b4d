"""What lies at a place that a user names: the store of the tables, a file, or a damaged table that an error names."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote

from offsetstream.errors import DamagedTableError, TablesError, UsageError, first_line, text_with_cause
from offsetstream.settings.kinds import CATALOG
from offsetstream.settings.places import LOCAL, parse_tables
from offsetstream.tables.catalog_store import CatalogStore
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import all_schemas
from offsetstream.tables.store import Store, damaged_table

_CHUNK = 1 << 16  # bytes
# How Spark, DuckDB and Arrow name a file of a table: the folder of all tables, and the table.
_FILE = re.compile(
    r"((?:/|[a-z][a-z0-9+.-]*:/|(?<=for file ))(?:(?!: )[^'\"\n])*?)/(\w+)"
    r"(?:/(?:written_day=[^/\s]+/)?[^/\s'\"]+\.parquet|/_delta_log\b| is damaged: )"
)
_FILE_SCHEME = re.compile("file:/+")


def store_at(text: str) -> Store:
    """Return the tables that `--tables` names; raises the UsageErrors of `parse_tables`."""
    place = parse_tables(text)
    if not CATALOG.fullmatch(place):
        return PathStore(place)
    catalog, schema = place.split(".")
    return CatalogStore(catalog, schema)


def write_file(place: str, data: bytes) -> None:
    """Write a file to a local path or a URI, atomically: readers see the old file until the new one is complete.

    UsageError if the local file cannot be written, TablesError if a store rejects it.
    """
    if "://" in place and not place.startswith(LOCAL):
        from offsetstream.tables.path_store.data_file import file_system  # noqa: PLC0415 - imports Arrow; rarely needed

        folder, _, name = place.rpartition("/")
        try:
            # delta-rs accepts only bytes. Arrow turns chunks that fit its buffer into bytes, but not larger ones.
            with file_system(folder).open_output_stream(name, buffer_size=2 * _CHUNK) as stream:
                shutil.copyfileobj(BytesIO(data), stream, _CHUNK)
        except Exception as error:  # each store has its own errors
            raise TablesError(f"cannot write {place}: {first_line(error)}") from error
        return
    path = Path(unquote(place.removeprefix(LOCAL)) if place.startswith(LOCAL) else place)
    try:
        if path.exists() and not path.is_file():  # a pipe or a device such as /dev/null must not be replaced
            path.write_bytes(data)
        else:
            _replace_file(path.resolve(), data)
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot write {place}: {reason}; name another file with --file") from error


def _replace_file(path: Path, data: bytes) -> None:
    """Replace a file atomically; keep its permissions, or use the user's default ones for a new file."""
    umask = os.umask(0o022)
    os.umask(umask)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~umask
    handle, new = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, mode)
            file.write(data)
        Path(new).replace(path)
    finally:
        Path(new).unlink(missing_ok=True)


def damage_in(error: BaseException, store: Store | None = None) -> DamagedTableError | None:
    """Return an error that names the damaged file, if `error`, or its cause, speaks of a table that is damaged.

    `store`: the tables, if they are known; else the error tells where they are.
    """
    if isinstance(error, DamagedTableError):
        return error
    for root, name in _FILE.findall(text_with_cause(error)):
        if name in all_schemas():
            with suppress(UsageError):
                damaged = damaged_table(store or store_at(_place(root)), name)
                if damaged is not None:
                    return damaged
    return None


def _place(root: str) -> str:
    root = _FILE_SCHEME.sub("/", root)
    return root if root.startswith("/") or ":/" in root else f"/{root}"  # DataFusion leaves out the first slash
