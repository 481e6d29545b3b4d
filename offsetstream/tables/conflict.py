"""Writes that lose against another one's, such as an OPTIMIZE beside them, and so are done again."""

from __future__ import annotations

from delta.exceptions import DeltaConcurrentModificationException
from deltalake.exceptions import CommitFailedError
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

CONFLICTS = (CommitFailedError, DeltaConcurrentModificationException)

# For functions that open the table themselves: each attempt sees what the winner left.
again_on_conflict = retry(
    retry=retry_if_exception_type(CONFLICTS),
    stop=stop_after_attempt(8),
    wait=wait_random_exponential(multiplier=0.05, max=2),
    reraise=True,
)
