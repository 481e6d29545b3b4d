"""Writes that lose against another one's, such as an OPTIMIZE beside them, and so are done again."""

from __future__ import annotations

from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from offsetstream.errors import ConflictError

# For functions that open the table themselves: each attempt sees what the winner left.
again_on_conflict = retry(
    retry=retry_if_exception_type(ConflictError),
    stop=stop_after_attempt(8),
    wait=wait_random_exponential(multiplier=0.05, max=2),
    reraise=True,
)
