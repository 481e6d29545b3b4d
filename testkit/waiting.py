"""Waiting for what is to become true."""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS = 240.0  # no assertion on time: only so that a failing test ends


def await_(
    condition: Callable[[], bool], told: Callable[[], object] = lambda: "waited in vain", *, pause: float = 0.1
) -> None:
    """Wait until the condition holds; AssertionError with what `told` says if it never does.

    `pause` is the time between two looks, in seconds.
    """
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, told()
        time.sleep(pause)
