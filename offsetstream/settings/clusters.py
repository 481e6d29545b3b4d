"""The clusters of a file of settings: their names, and that each has tables and checkpoints of its own."""

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
# What no two clusters may share, with the general defaults: that of a cluster that does not name its own is below them.
APART = {"tables": "tables", "checkpoint": "checkpoints"}
_PORT, _ADDRESS = "metrics-port", "metrics-address"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # also of folders: neither .. nor -x
_LOCAL = re.compile(r"file://(localhost)?(?=/)", re.IGNORECASE)


def check_name(path: str, name: str) -> None:
    """Raise UsageError for a name that a cluster cannot have."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{path}: {TABLE}.{name!r} cannot be a cluster's name: it has letters, digits, '-', '_' and '.', "
            "and begins with a letter or a digit"
        )


def require_different(path: str, names: Sequence[str]) -> None:
    """Raise UsageError for names that differ by case only: many disks, and DuckDB, take these for one."""
    for one, other in combinations(names, 2):
        if one.lower() == other.lower():
            raise UsageError(f"{path}: the clusters {one} and {other} differ by case only: give one another name")


def unknown(path: str, name: str, known: Sequence[str]) -> UsageError:
    """Return what to say of a cluster that the file does not have."""
    return UsageError(
        f"{path}: there is no cluster {name}: " + (advice(name, known) if known else "it has none at all")
    )


def advice(name: str, known: Sequence[str]) -> str:
    """Return which of the known names may be meant, or all of them."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for this

    alike = get_close_matches(name, known, 1)
    return f"did you mean {alike[0]}?" if alike else f"known are {', '.join(known)}"


def below(path: str, cluster: str, key: str, general: Any) -> Any:
    """Return the folder of the cluster's name in the general one; UsageError for a catalog, which has no folders."""
    folder = APART[key] if general is None else general
    if not isinstance(folder, str):
        return folder  # which is told where it is checked
    if key == "tables" and CATALOG.fullmatch(folder):
        raise UsageError(
            f"{path}: {TABLE}.{cluster} needs {key} of its own: {folder} is a catalog's schema, which has no folders"
        )
    return f"{folder.rstrip('/')}/{cluster}"


def require_apart(path: str, jobs: Mapping[str, Callable[[str], Any]]) -> None:
    """Raise UsageError where two clusters' jobs come out with the same tables, checkpoints or port.

    `jobs` give the value of a key, by the names of the clusters.
    """
    for key in (*APART, _PORT):
        values = {name: given(key) for name, given in jobs.items()} if len(jobs) > 1 else {}
        for one, other in combinations(values, 2):
            apart = key == _PORT and jobs[one](_ADDRESS) != jobs[other](_ADDRESS)
            if values[one] and not apart and _place(values[one]) == _place(values[other]):
                raise UsageError(
                    f"{path}: the clusters {one} and {other} have the same {key} {values[one]}: give each its own"
                )


def _place(value: Any) -> Any:
    """Return what is the same for two names of one place."""
    if not isinstance(value, str) or CATALOG.fullmatch(value):
        return value
    if local := _LOCAL.match(value):
        value = unquote(value[local.end() :])
    if "://" in value or value.startswith("dbfs:/"):
        return re.sub("^s3n?:", "s3a:", value.rstrip("/"))
    return os.path.realpath(os.path.expanduser(value))  # noqa: PTH111 - of a user that there is not, a Path raises
