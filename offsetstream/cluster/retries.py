"""Retry requests to a cluster that has no answer at the moment, with growing pauses and a limit."""

from __future__ import annotations

from typing import Any

from tenacity import RetryCallState, Retrying, stop_after_delay
from tenacity.retry import retry_base
from tenacity.wait import wait_random_exponential

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds


def patience(retry: retry_base, timeout: float) -> Retrying:
    """Return a tenacity Retrying that retries for up to `timeout` seconds while `retry` says so.

    After that, it returns the last answer or raises the last error.
    """
    return Retrying(
        retry=retry,
        stop=stop_after_delay(timeout),
        wait=wait_random_exponential(_FIRST_PAUSE, _LONGEST_PAUSE),
        retry_error_callback=_last_outcome,
    )


def _last_outcome(state: RetryCallState) -> Any:
    return state.outcome.result() if state.outcome else None
