"""Writes that lose against another one's, such as an OPTIMIZE beside them, and so are done again."""

from __future__ import annotations

from deltalake.exceptions import CommitFailedError, DeltaError
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random_exponential

# By name, so that a write by delta-rs alone needs no Spark.
_SPARKS, _OF_DELTA = {"PySparkException", "Py4JJavaError"}, "DeltaConcurrentModificationException"


def is_conflict(error: BaseException) -> bool:
    """Tell whether a write failed since another one was quicker, in the words of delta-rs or of Spark."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, CommitFailedError) or _OF_DELTA in kinds or _is_vacuumed(error):
        return True
    # Delta's Python package knows its own conflicts by their class, and not all of them have the one that it knows.
    said = str(error)
    return bool(kinds & _SPARKS) and ("DELTA_CONCURRENT" in said or "Concurrent" in said)


def _is_vacuumed(error: BaseException) -> bool:
    """Tell whether a file was gone that the table had when it was opened: somebody compacted it and ran VACUUM."""
    return isinstance(error, DeltaError) and "Object at location" in str(error) and "not found" in str(error)


# For functions that open the table themselves: each attempt sees what the winner left.
again_on_conflict = retry(
    retry=retry_if_exception(is_conflict),
    stop=stop_after_attempt(8),
    wait=wait_random_exponential(multiplier=0.05, max=2),
    reraise=True,
)
