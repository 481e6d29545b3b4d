"""A lock between micro-batches and the main loop: only one of them writes at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

POLL_SECONDS = 1.0


class Turns:
    """A lock and its context. `while_waiting` is called every second of a wait for it, and may raise to give up.

    `step` is called when the context has the lock, and when it has given it back.
    """

    def __init__(self, while_waiting: Callable[[], None], step: Callable[[], None] = lambda: None) -> None:
        self._lock = threading.Lock()
        self._while_waiting = while_waiting
        self._step = step

    def __enter__(self) -> None:
        while not self.take(POLL_SECONDS):
            self._while_waiting()
        self._step()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.give_back()
        self._step()

    @property
    def is_taken(self) -> bool:
        """Whether somebody has the lock."""
        return self._lock.locked()

    def take(self, seconds: float = -1) -> bool:
        """Take the lock, waiting up to `seconds` (-1: without limit). Return whether it was taken."""
        return self._lock.acquire(timeout=seconds)

    def give_back(self) -> None:
        """Release the lock."""
        self._lock.release()
