"""Retries while no broker answers or lets the job in, while the store fails, and after Spark lost a part.

With growing pauses, a log line each, and a limit.
"""

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

from offsetstream.errors import LostPartError, RefusedLoginError, StoreFaultError, UnreachableError, UsageError

LONGEST_PAUSE = 30.0  # seconds
# The job ends with its fifth loss of a part of Spark within ten minutes.
MOST_LOSSES, LOSSES_WITHIN = 5, timedelta(minutes=10)
OUTAGES = (UnreachableError, StoreFaultError)
# While someone changes a password or a certificate, a broker refuses the login, or a file does not fit the others.
LOGIN_CHANGES = (RefusedLoginError, UsageError)
Answer = TypeVar("Answer")


class Patience:
    """Repeats a request while no broker answers or the store fails, for at most `limit`, or until `stop` is set.

    Once it got an answer, it also repeats a request with LOGIN_CHANGES.
    """

    def __init__(self, limit: timedelta, stop: threading.Event, warn: Callable[[str], None]) -> None:
        self.limit = limit
        self._warn = warn
        self._stop = stop
        self._was_answered = False

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """Return the answer of `question`. Raise its last error when the time is over."""
        retrying = Retrying(
            retry=retry_if_exception_type(OUTAGES + (LOGIN_CHANGES if self._was_answered else ())),
            wait=wait_exponential(max=LONGEST_PAUSE),
            stop=stop_any(stop_after_delay(self.limit), stop_when_event_set(self._stop)),
            sleep=sleep_using_event(self._stop),
            before_sleep=self._log_retry,
            reraise=True,
        )
        answer = retrying(question)
        self._was_answered = True
        return answer

    def _log_retry(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        pause = state.next_action.sleep if state.next_action else 0.0
        self._warn(f"{error}; retrying in {pause:.0f} s")


class Standstill:
    """How long the attempts of a job have ended by outages without any progress."""

    def __init__(self, limit: timedelta) -> None:
        self._limit = limit
        self._since: float | None = None
        self._has_worked = False

    def bear(self, error: Exception, *, started: float, has_loaded: bool, has_moved: bool) -> None:
        """Raise the error if the attempt that it ended is to be the last.

        A cluster may answer requests and return no records, and a store may take only small files: then the job ends
        after `limit` without progress. It also ends if it has never worked, unless no broker answers: no password has
        changed, and the store is no other one.
        """
        self._has_worked = self._has_worked or has_loaded
        now = time.monotonic()
        if self._since is None or has_moved or timedelta(seconds=now - started) > self._limit:
            self._since = now
        if timedelta(seconds=now - self._since) > self._limit:
            raise error
        if not self._has_worked and not isinstance(error, UnreachableError):
            raise error


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
