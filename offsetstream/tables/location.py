"""Parse the place that a user names: a folder, the URI of a store that Spark and delta-rs reach, or catalog.schema."""

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

_CHUNK = 1 << 16  # bytes
_LOCAL, _DBFS = "file://", "dbfs:/"
# delta-rs (1.6) confuses some folder names (%41 and A, backslash and slash), and crashes with others.
_NOT_FOR_DELTA_RS = re.compile(r"%[0-9A-Fa-f]{2}|[\[\]^|\\\x00-\x1f\x7f]")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)  # for example dbfs:/kafka, which delta-rs cannot reach


def is_utf8(text: str) -> bool:
    """Return whether the text can be encoded as UTF-8; Python decodes other bytes as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def store_at(text: str) -> Store:
    """Return the tables that `--tables` names; raises the UsageErrors of `parse_tables`."""
    place = parse_tables(text)
    if not CATALOG.fullmatch(place):
        return PathStore(place)
    catalog, schema = place.split(".")
    return CatalogStore(catalog, schema)


def parse_tables(text: str) -> str:
    """Return `catalog.schema` as it is; parse anything else with `parse_location`.

    Also raises UsageError if a folder has a name like `catalog.schema`, if a name has more than two parts, and for a
    volume of Unity Catalog.
    """
    if not CATALOG.fullmatch(text):
        location = parse_location(text)
        if location.startswith("/Volumes/") and is_databricks():  # elsewhere it is an ordinary folder
            raise UsageError(
                f"{location} is a volume of Unity Catalog, where delta-rs cannot commit (delta-io/delta-rs#2540): "
                "name a catalog and schema instead, such as --tables main.kafka"
            )
        return location
    if Path(text).exists():
        raise UsageError(f"{text} is a catalog and schema, but also a folder here: type ./{text} for the folder")
    if text.count(".") > 1:
        raise UsageError(f"{text} is not a catalog and schema: type catalog.schema, or ./{text} for a folder")
    return text


def parse_location(text: str) -> str:
    """Return the location without a slash at the end: a URI as it is, a local path (also `file://`) as absolute path.

    `file://` becomes a path because Spark, Hadoop and delta-rs treat the escapes of a URI (`%20`) differently.
    UsageError for a name that is not UTF-8, which Delta and Spark reject, and for one that delta-rs confuses with
    another.
    """
    if not is_utf8(text):
        raise UsageError(f"the name of the folder {text} is not UTF-8: use another folder")
    if text.startswith(f"{_LOCAL}/"):
        text = unquote(text.removeprefix(_LOCAL))
    elif "://" in text and not text.startswith("dbfs:"):
        return text.rstrip("/")
    if _SCHEME.match(text):
        raise UsageError(
            f"{text} is neither a folder nor a URI with '://': type a URI such as s3a://lake/kafka, or the folder "
            "where the store is mounted, such as /dbfs/kafka"
        )
    try:
        # Hadoop reads a host name after two slashes at the start, which an empty variable may leave.
        root = re.sub("^/+", "/", str(Path(text).expanduser().absolute()))
    except RuntimeError as error:  # ~user, and this user has no home
        raise UsageError(f"{text} is not a folder: {error}") from error
    if unfit := _NOT_FOR_DELTA_RS.search(root):
        raise UsageError(
            f"{root} has {unfit.group()!r} in its name, and Delta cannot find such a folder again: use another folder"
        )
    return root


def write_file(place: str, data: bytes) -> None:
    """Write a file to a local path or a URI, atomically: readers see the old file until the new one is complete.

    UsageError if the local file cannot be written, TablesError if a store rejects it.
    """
    if "://" in place and not place.startswith(_LOCAL):
        from offsetstream.tables.path_store.data_file import file_system  # noqa: PLC0415 - imports Arrow; rarely needed

        folder, _, name = place.rpartition("/")
        try:
            # delta-rs accepts only bytes. Arrow turns chunks that fit its buffer into bytes, but not larger ones.
            with file_system(folder).open_output_stream(name, buffer_size=2 * _CHUNK) as stream:
                shutil.copyfileobj(BytesIO(data), stream, _CHUNK)
        except Exception as error:  # each store has its own errors
            raise TablesError(f"cannot write {place}: {first_line(error)}") from error
        return
    path = Path(unquote(place.removeprefix(_LOCAL)) if place.startswith(_LOCAL) else place)
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


def parse_checkpoint(text: str) -> str:
    """Parse a checkpoint location like `parse_location`, but allow Databricks' `dbfs:/...`, also with volumes.

    Only Hadoop must reach a checkpoint; delta-rs, which cannot read `dbfs:/`, does not use it.
    """
    if text.startswith(_DBFS):
        return f"{_DBFS}//{text.removeprefix(_DBFS).strip('/')}"
    return parse_location(text)


def in_hadoop(location: str) -> str:
    """Return the URI that Spark needs for a location of `parse_location`.

    Hadoop would look for a path without a scheme in `fs.defaultFS`. It does not decode escapes, so none are made.
    """
    return location if "://" in location else f"file:{location}"
