"""What a user names a place by: a folder, the URI of a store that Spark and delta-rs both reach, a catalog's schema."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote

from offsetstream.errors import TablesError, UsageError, first_line
from offsetstream.settings.databricks import is_databricks
from offsetstream.settings.kinds import CATALOG
from offsetstream.tables.catalog_store import CatalogStore
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.store import Store

_PIECE = 1 << 16  # bytes
_LOCAL, _DBFS = "file://", "dbfs:/"
# delta-rs (1.6) takes some folders for others, and ends at once in some: %41 for A, a backslash for a slash.
_NOT_FOR_DELTA_RS = re.compile(r"%[0-9A-Fa-f]{2}|[\[\]^|\\\x00-\x1f\x7f]")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)  # as of dbfs:/kafka, which delta-rs does not reach


def is_utf8(text: str) -> bool:
    """Tell whether the text can be written as UTF-8: it has no lone surrogate, as Python makes of other bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def store_at(text: str) -> Store:
    """Return the tables that a user named by `--tables`; UsageError as of `parse_tables`."""
    place = parse_tables(text)
    if not CATALOG.fullmatch(place):
        return PathStore(place)
    catalog, schema = place.split(".")
    return CatalogStore(catalog, schema)


def parse_tables(text: str) -> str:
    """Return what a user named: `catalog.schema` as it is, else a location as of `parse_location`.

    UsageError as there, and where a folder has such a name, or a name such parts and more than two; and for a volume of
    Unity Catalog.
    """
    if not CATALOG.fullmatch(text):
        location = parse_location(text)
        if location.startswith("/Volumes/") and is_databricks():  # elsewhere a mere folder
            raise UsageError(
                f"{location} is a volume of Unity Catalog, where delta-rs cannot commit (delta-io/delta-rs#2540): "
                "name a catalog's schema, as --tables main.kafka"
            )
        return location
    if Path(text).exists():
        raise UsageError(f"{text} names a catalog's schema, but there is a folder {text} here: name that as ./{text}")
    if text.count(".") > 1:
        raise UsageError(f"{text} is no catalog and schema: name these as catalog.schema, or a folder as ./{text}")
    return text


def parse_location(text: str) -> str:
    """Return what a user named, without a slash at its end: a URI as it is, a local path (`file://` too) absolute.

    A local path is all that Spark, Hadoop and delta-rs understand alike: a URI's escapes, as `%20`, they do not.
    UsageError for a name that is not UTF-8, which neither Delta nor Spark takes, and for one that delta-rs takes
    for another one.
    """
    if not is_utf8(text):
        raise UsageError(f"the name of the folder {text} is not UTF-8: name another one")
    if text.startswith(f"{_LOCAL}/"):
        text = unquote(text.removeprefix(_LOCAL))
    elif "://" in text and not text.startswith("dbfs:"):
        return text.rstrip("/")
    if _SCHEME.match(text):
        raise UsageError(
            f"{text} is neither a folder nor a URI with '://': name one such as s3a://lake/kafka, or the folder "
            "where the store is mounted, such as /dbfs/kafka"
        )
    try:
        # Two slashes at the beginning, as of an empty variable, are a host's name to Hadoop.
        root = re.sub("^/+", "/", str(Path(text).expanduser().absolute()))
    except RuntimeError as error:  # of a user's home that there is not
        raise UsageError(f"{text} names no folder: {error}") from error
    if unfit := _NOT_FOR_DELTA_RS.search(root):
        raise UsageError(
            f"{root} has {unfit.group()!r} in its name, with which Delta cannot find the folder again: name another one"
        )
    return root


def write_file(place: str, data: bytes) -> None:
    """Write a file to a local path or a URI, whole or not at all: who reads it meanwhile has the one before.

    UsageError where there cannot be such a file, TablesError where a store refuses it.
    """
    if "://" in place and not place.startswith(_LOCAL):
        from offsetstream.tables.path_store.folder import file_system  # noqa: PLC0415 - of Arrow; looking needs none

        folder, _, name = place.rpartition("/")
        try:
            # In pieces that fit into Arrow's buffer: a larger one it hands on as it is, and delta-rs takes bytes only.
            with file_system(folder).open_output_stream(name, buffer_size=2 * _PIECE) as stream:
                shutil.copyfileobj(BytesIO(data), stream, _PIECE)
        except Exception as error:  # stores have errors of many kinds
            raise TablesError(f"cannot write {place}: {first_line(error)}") from error
        return
    path = Path(unquote(place.removeprefix(_LOCAL)) if place.startswith(_LOCAL) else place)
    try:
        if path.exists() and not path.is_file():  # a pipe, or a device such as /dev/null, which must stay what it is
            path.write_bytes(data)
        else:
            _replace_file(path.resolve(), data)
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot write {place}: {reason}; name another file by --file") from error


def _replace_file(path: Path, data: bytes) -> None:
    """Put a new file in the place of another, with the rights of that, or those that the user gives to new ones."""
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


def parse_checkpoint(text: str) -> str:
    """Return what a user named for checkpoints, as `parse_location` does, but for Databricks' `dbfs:/...`.

    That has volumes, too (`dbfs:/Volumes/...`). Hadoop reaches it there, and delta-rs does not, which checkpoints do
    not need.
    """
    if text.startswith(_DBFS):
        return f"{_DBFS}//{text.removeprefix(_DBFS).strip('/')}"
    return parse_location(text)


def in_hadoop(location: str) -> str:
    """Return the URI for Spark of what `parse_location` returned: a path alone is one of `fs.defaultFS` to Hadoop.

    Hadoop takes the rest of it as it is: it knows no escapes.
    """
    return location if "://" in location else f"file:{location}"
