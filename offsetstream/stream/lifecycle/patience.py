"""Retries while no broker answers: with growing pauses, a log line for each, and a limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_delay,
    stop_any,
    stop_when_event_set,
    wait_exponential,
)

from offsetstream.errors import UnreachableError

LONGEST_PAUSE = 30.0  # seconds
Answer = TypeVar("Answer")


class Patience:
    """Repeats a request while no broker answers, for at most `limit`, or until `stop` is set."""

    def __init__(self, limit: timedelta, stop: threading.Event, warn: Callable[[str], None]) -> None:
        self.limit = limit
        self._warn = warn
        self._stop = stop

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """Return the answer of `question`. Raise its last UnreachableError when the time is over."""
        retrying = Retrying(
            retry=retry_if_exception_type(UnreachableError),
            wait=wait_exponential(max=LONGEST_PAUSE),
            stop=stop_any(stop_after_delay(self.limit), stop_when_event_set(self._stop)),
            sleep=sleep_using_event(self._stop),
            before_sleep=self._log_retry,
            reraise=True,
        )
        return retrying(question)

    def _log_retry(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        pause = state.next_action.sleep if state.next_action else 0.0
        self._warn(f"{error}; retrying in {pause:.0f} s")
