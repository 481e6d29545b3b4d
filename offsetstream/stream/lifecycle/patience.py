"""Retries while no broker answers, and after Spark lost a part: with growing pauses, a log line each, and a limit."""

from __future__ import annotations

import threading
import time
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

from offsetstream.errors import LostPartError, UnreachableError

LONGEST_PAUSE = 30.0  # seconds
# The job ends with its fifth loss of a part of Spark within ten minutes.
MOST_LOSSES, LOSSES_WITHIN = 5, timedelta(minutes=10)
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


class Losses:
    """Counts how often Spark lost a part of itself, so that the job ends if this happens too often."""

    def __init__(self, stop: threading.Event, warn: Callable[[str], None]) -> None:
        self._stop = stop
        self._warn = warn
        self._at: list[float] = []

    def wait_after(self, error: LostPartError) -> None:
        """Log the loss, and wait before the next attempt. Raise LostPartError that ends the job at the last one."""
        now = time.monotonic()
        self._at = [*(at for at in self._at if now - at < LOSSES_WITHIN.total_seconds()), now]
        minutes = LOSSES_WITHIN.total_seconds() / 60
        if len(self._at) >= MOST_LOSSES:
            raise LostPartError(
                f"{error}, for the {len(self._at)}th time within {minutes:.0f} minutes. Nothing is lost. "
                f"{error.advice}. Then start the job again",
                error.advice,
            ) from error
        pause = min(LONGEST_PAUSE, 2.0 ** (len(self._at) - 1))
        self._warn(f"{error}; trying again from the tables' positions in {pause:.0f} s")
        self._stop.wait(pause)
