"""The clusters of a settings file: check their names, and that no two share tables, checkpoints or a port."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any
from urllib.parse import unquote

from offsetstream.errors import UsageError
from offsetstream.settings.kinds import CATALOG

TABLE = "clusters"
# Folders that no two clusters may share, and their defaults. A cluster without its own uses a subfolder of the default.
OWN_FOLDERS = {"tables": "tables", "checkpoint": "checkpoints"}
_PORT, _ADDRESS = "metrics-port", "metrics-address"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # also a folder's name: neither .. nor -x
_LOCAL = re.compile(r"file://(localhost)?(?=/)", re.IGNORECASE)


def check_name(path: str, name: str) -> None:
    """Raise UsageError if a cluster cannot have this name."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{path}: {TABLE}.{name!r} is not a valid cluster name: use letters, digits, '-', '_' and '.', "
            "and start with a letter or a digit"
        )


def require_different(path: str, names: Sequence[str]) -> None:
    """Raise UsageError if two names differ by case only: DuckDB and many file systems treat them as one."""
    for one, other in combinations(names, 2):
        if one.lower() == other.lower():
            raise UsageError(f"{path}: the clusters {one} and {other} differ by case only: rename one of them")


def unknown(path: str, name: str, known: Sequence[str]) -> UsageError:
    """Return the error for a cluster that the file does not have."""
    return UsageError(
        f"{path}: there is no cluster {name}: " + (suggestion(name, known) if known else "the file has no clusters")
    )


def suggestion(name: str, known: Sequence[str]) -> str:
    """Return the known name that is most alike, as a question, else all known names."""
    from difflib import get_close_matches  # noqa: PLC0415 - for errors only

    alike = get_close_matches(name, known, 1)
    return f"did you mean {alike[0]}?" if alike else f"known names are {', '.join(known)}"


def subfolder(path: str, cluster: str, key: str, general: Any) -> Any:
    """Return the cluster's subfolder of the general folder. Raise UsageError for a catalog, which has no folders."""
    folder = OWN_FOLDERS[key] if general is None else general
    if not isinstance(folder, str):
        return folder  # reported where its type is checked
    if key == "tables" and CATALOG.fullmatch(folder):
        raise UsageError(
            f"{path}: {TABLE}.{cluster} needs its own {key}: {folder} is a schema of a catalog and has no subfolders"
        )
    return f"{folder.rstrip('/')}/{cluster}"


def require_own_places(path: str, jobs: Mapping[str, Callable[[str], Any]]) -> None:
    """Raise UsageError if the jobs of two clusters have the same tables, checkpoints or port.

    `jobs` has for each cluster's name a function that returns the value of a key.
    """
    for key in (*OWN_FOLDERS, _PORT):
        values = {name: given(key) for name, given in jobs.items()} if len(jobs) > 1 else {}
        for one, other in combinations(values, 2):
            own_address = key == _PORT and jobs[one](_ADDRESS) != jobs[other](_ADDRESS)
            if values[one] and not own_address and _place(values[one]) == _place(values[other]):
                raise UsageError(
                    f"{path}: clusters {one} and {other} have the same {key} {values[one]}: give each cluster its own"
                )


def _place(value: Any) -> Any:
    """Return a form in which two names of one place are equal."""
    if not isinstance(value, str) or CATALOG.fullmatch(value):
        return value
    if local := _LOCAL.match(value):
        value = unquote(value[local.end() :])
    if "://" in value or value.startswith("dbfs:/"):
        return re.sub("^s3n?:", "s3a:", value.rstrip("/"))
    return os.path.realpath(os.path.expanduser(value))  # noqa: PTH111 - a Path raises if there is no such user
