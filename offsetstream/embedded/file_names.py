"""File names that are not ASCII, in a locale that is not UTF-8: a JVM writes question marks for them."""

from __future__ import annotations

import locale
import os
from collections.abc import Iterable
from typing import Any

from offsetstream.errors import EnvironmentNotReadyError

_LOCALE = "C.UTF-8"


def start_java_in_utf8() -> None:
    """Give the processes that this one starts from now on a locale of UTF-8, if its own is none (as `LC_ALL=C`).

    Python by itself reads and writes names as UTF-8 in the locale C (PEP 538, 540); a JVM does as the locale says.
    """
    if locale.getencoding().upper().replace("-", "") != "UTF8":
        os.environ["LC_ALL" if os.environ.get("LC_ALL") else "LC_CTYPE"] = _LOCALE


def require_java_in_utf8(java: Any, folders: Iterable[str]) -> None:
    """Raise EnvironmentNotReadyError if the JVM cannot write one of these local folders' names."""
    encoding = str(java.java.lang.System.getProperty("sun.jnu.encoding"))
    strange = [folder for folder in folders if not folder.isascii() and "://" not in folder]
    if strange and encoding.upper() not in {"UTF-8", "UTF8"}:
        raise EnvironmentNotReadyError(
            f"Spark's Java has file names in {encoding}, and {strange[0]} is not ASCII: start it with LC_ALL={_LOCALE}"
        )
