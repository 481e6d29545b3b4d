"""Standard input, output and error, of which whoever started us may have closed some (`2>&-`)."""

from __future__ import annotations

import os
import sys

_STDERR = 2


def hold_standard_descriptors() -> None:
    """Have the null device where one of the three is closed.

    Else the next file that is opened gets its number, and what libraries and Java print is written into that. Python
    has no standard error then: with this one what is told beside an answer is lost, as was asked for, and the answer is
    not. That standard output is closed is still known by `sys.stdout`, which is None.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(number, True)  # for processes that are started
    os.close(number)
    if sys.stderr is None:
        sys.stderr = open(_STDERR, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115 - it stays
