"""Standard input, output and error: closed by whoever started us (`2>&-`), or a file on a disk that is full."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

_STDOUT, _STDERR = 1, 2


class _Lossy(io.FileIO):
    """Standard error, whose text is lost where it cannot be written: what it is beside of, an answer or a job, is not.

    Whoever read a pipe and went away is still noticed.
    """

    def write(self, data: Any, /) -> int:
        """Write bytes, or seem to."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            return len(data)


def hold_standard_descriptors() -> None:
    """Have the null device where one of the three is closed, and lose nothing else where standard error is full.

    The next file that is opened would get the number of a closed one, and what libraries and Java print would be
    written into that. That standard output is closed is still known by `sys.stdout`, which is None.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(number, True)  # for processes that are started
    os.close(number)
    if sys.stderr is sys.__stderr__:  # else it is somebody else's, who takes what is told
        raw = _Lossy(_STDERR, "w", closefd=False)
        sys.stderr = io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True)


def flush_answers() -> OSError | None:
    """Write what standard output still holds; the error where it cannot be written, and then it is lost.

    Python would try once more when it ends, and add lines and an exit code of its own.
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
