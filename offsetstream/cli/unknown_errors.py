"""Errors that nobody expected: one line for the user, and a file with the complete text."""

from __future__ import annotations

import errno
import os
import re
import sys
import tempfile
import textwrap
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import click

from offsetstream.errors import OffsetstreamError, is_interrupt, text_of

PREFIX = "offsetstream-error-"
_MOST_FILES = 10  # a job that is started again and again must not fill the disk
_MAX_LENGTH = 300  # characters of each quoted line
_STACK = re.compile(r"\s*(?:at \S+\(|\.\.\. \d+ more|File \"|\^|~)|\s{4}|\s*$")  # of Java or Python, and its source
_PLAN = re.compile(r"^(?:=== Streaming Query ===|== .*Plan ==|Driver stacktrace:|JVM stacktrace:)$", re.MULTILINE)


def is_storage_error(error: Exception) -> bool:
    """Tell whether a file system, or DuckDB reading files, failed: disk full, access denied, not Parquet."""
    if isinstance(error, OSError):
        return error.errno != errno.EPIPE  # click handles a closed pipe itself
    duckdb = sys.modules.get("duckdb")  # not imported here: that would slow down --help
    return duckdb is not None and isinstance(error, duckdb.Error)


def is_of_click(error: Exception) -> bool:
    """Tell whether click handles the error itself: a usage error, an exit, an end by Ctrl-C, a closed pipe."""
    return isinstance(error, click.ClickException | click.exceptions.Exit | click.Abort | BrokenPipeError)


def is_unknown(error: Exception) -> bool:
    """Tell whether no part of the program has words for the error, or a way to handle it."""
    has_words = isinstance(error, OffsetstreamError | ModuleNotFoundError) or is_storage_error(error)
    return not (has_words or is_of_click(error) or is_interrupt(error))


def unknown_error(error: BaseException, folder: str | None = None) -> str:
    """Return a line with the first and the last line of an error, and write the complete text to a file.

    The file is in `folder` if that is a local folder, else in the folder of temporary files. The newest ten stay.
    """
    name = type(error).__name__
    first, last = _ends(text_of(error))
    said = name if not first else f"{name}: {first}"
    if last and last != first:
        said += f" ... {last}"
    file = _written("".join(traceback.format_exception(error)), folder)
    return f"Unknown error: {said}{'' if said.endswith('.') else '.'} " + (
        f"The complete error is in {file}" if file else "Its complete text cannot be written to any file"
    )


def _ends(text: str) -> tuple[str, str]:
    """Return the first line, and the last one that says a reason: not of a stack or of a query's plan."""
    plan = _PLAN.search(text)
    reasons = text[: plan.start()] if plan else text
    lines = [line.strip() for line in reasons.splitlines() if not _STACK.match(line)]
    if not lines:
        return "", ""
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return _short(lines[0]), _short((causes or lines)[-1])


def _short(line: str) -> str:
    return textwrap.shorten(line, _MAX_LENGTH, placeholder=" ...")


def _written(text: str, folder: str | None) -> Path | None:
    """Write the text to a new file that only this user can read. Return None if that is not possible."""
    name = f"{PREFIX}{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}.txt"
    local = [Path(folder)] if folder and Path(folder).is_dir() else []
    for place in (*local, Path(tempfile.gettempdir())):
        with suppress(OSError):
            file = place / name
            file.touch(0o600)
            file.write_text(text, "utf-8", "backslashreplace")
            for old in sorted(place.glob(f"{PREFIX}*.txt"))[:-_MOST_FILES]:
                old.unlink()
            return file
    return None
