"""Retries of writes that lost against another commit, such as an OPTIMIZE."""

from __future__ import annotations

from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from offsetstream.errors import ConflictError

# Only for functions that open the table themselves, so that each attempt sees the commit that won. They must take no
# iterator: the next attempt would find it at its end.
again_on_conflict = retry(
    retry=retry_if_exception_type(ConflictError),
    stop=stop_after_attempt(8),
    wait=wait_random_exponential(multiplier=0.05, max=2),
    reraise=True,
)
