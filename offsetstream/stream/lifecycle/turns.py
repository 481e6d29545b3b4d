"""Whose turn it is to write: a micro-batch's, or the main loop's between two of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

POLL_SECONDS = 1.0


class Turns:
    """A lock, as a context; who waits for it looks at something else now and then, and may give up by raising."""

    def __init__(self, while_waiting: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._while_waiting = while_waiting

    def __enter__(self) -> None:
        while not self.take(POLL_SECONDS):
            self._while_waiting()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.give_back()

    def take(self, seconds: float = -1) -> bool:
        """Wait for the turn for so long, or until it comes; returns whether it has."""
        return self._lock.acquire(timeout=seconds)

    def give_back(self) -> None:
        """End the turn."""
        self._lock.release()
