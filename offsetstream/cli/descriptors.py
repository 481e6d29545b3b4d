"""Standard input, output and error when the caller closed them (`2>&-`), or when they write to a full disk."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

_STDOUT, _STDERR = 1, 2


class _Lossy(io.FileIO):
    """Standard error that drops text it cannot write, so that an answer or a job does not fail because of it.

    A closed pipe still raises.
    """

    def write(self, data: Any, /) -> int:
        """Write bytes; drop them if that fails."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            return len(data)


def hold_standard_descriptors() -> None:
    """Open the null device in place of a closed standard descriptor, and make standard error tolerate a full disk.

    Otherwise the next opened file would get the number of the closed one, and output of libraries and Java would go
    into it. `sys.stdout` stays None if standard output is closed.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(number, True)  # for child processes
    os.close(number)
    if sys.stderr is sys.__stderr__:  # else somebody, such as a test, has replaced it
        raw = _Lossy(_STDERR, "w", closefd=False)
        sys.stderr = io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True)


def flush_answers() -> OSError | None:
    """Flush standard output; return the error if that fails, and drop the text.

    Otherwise Python would flush again at exit, and print lines and set an exit code of its own.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, _STDOUT)
        os.close(null)
        return error
    return None
