"""How a cluster is asked again that has no answer for now: with longer and longer pauses, and not for ever."""

from __future__ import annotations

from typing import Any

from tenacity import RetryCallState, Retrying, stop_after_delay
from tenacity.retry import retry_base
from tenacity.wait import wait_random_exponential

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds


def patience(retry: retry_base, timeout: float) -> Retrying:
    """Return what asks again for `timeout` seconds while `retry` says so; then the last answer, or error, is it."""
    return Retrying(
        retry=retry,
        stop=stop_after_delay(timeout),
        wait=wait_random_exponential(_FIRST_PAUSE, _LONGEST_PAUSE),
        retry_error_callback=_last,
    )


def _last(state: RetryCallState) -> Any:
    return state.outcome.result() if state.outcome else None
