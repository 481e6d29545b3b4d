"""Places: a folder, the URI of a store that Spark and delta-rs reach, catalog.schema, and where this process runs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from offsetstream.errors import UsageError
from offsetstream.settings.kinds import CATALOG

LOCAL, _DBFS = "file://", "dbfs:/"
# delta-rs (1.6) confuses some folder names (%41 and A, backslash and slash), and crashes with others.
_NOT_FOR_DELTA_RS = re.compile(r"%[0-9A-Fa-f]{2}|[\[\]^|\\\x00-\x1f\x7f]")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)  # for example dbfs:/kafka, which delta-rs cannot reach


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
    if text.startswith(f"{LOCAL}/"):
        text = unquote(text.removeprefix(LOCAL))
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


def is_remote(place: str) -> bool:
    """Return whether tables are in an object store: a URI, where a local folder has a path."""
    return "://" in place


def is_utf8(text: str) -> bool:
    """Return whether the text can be encoded as UTF-8; Python decodes other bytes as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_databricks() -> bool:
    """Tell whether this process runs in Databricks' runtime, which sets the variable."""
    return "DATABRICKS_RUNTIME_VERSION" in os.environ
