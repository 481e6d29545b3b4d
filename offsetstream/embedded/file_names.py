"""Make JVMs use UTF-8 for file names. In another locale, they write question marks for characters outside ASCII.

A module of its own, since every command imports it at its start: it must stay light.
"""

from __future__ import annotations

import locale
import os
from collections.abc import Iterable
from typing import Any

from offsetstream.errors import EnvironmentNotReadyError

_LOCALE = "C.UTF-8"


def start_java_in_utf8() -> None:
    """Set a UTF-8 locale for processes that start after this, if the current one is not UTF-8 (such as `LC_ALL=C`).

    In the locale C, Python itself uses UTF-8 (PEP 538, 540), but a JVM does not.
    """
    if locale.getencoding().upper().replace("-", "") != "UTF8":
        os.environ["LC_ALL" if os.environ.get("LC_ALL") else "LC_CTYPE"] = _LOCALE


def require_java_in_utf8(java: Any, folders: Iterable[str]) -> None:
    """Raise EnvironmentNotReadyError if the JVM cannot write one of these local folders' names."""
    encoding = str(java.java.lang.System.getProperty("sun.jnu.encoding"))
    non_ascii = [folder for folder in folders if not folder.isascii() and "://" not in folder]
    if non_ascii and encoding.upper() not in {"UTF-8", "UTF8"}:
        raise EnvironmentNotReadyError(
            f"Spark's Java uses {encoding} for file names, and {non_ascii[0]} is not ASCII. "
            f"Start it with LC_ALL={_LOCALE}"
        )
