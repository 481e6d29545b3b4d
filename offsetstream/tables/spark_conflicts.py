"""Conflicts of Delta's commits where Spark makes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from offsetstream.errors import ConflictError

# By the exceptions' names: what they print has frames of ConcurrentHashMap and the like.
_CONFLICT = re.compile(r"DELTA_CONCURRENT|Concurrent\w*Exception")


@contextmanager
def conflicts_told() -> Iterator[None]:
    """Raise ConflictError where Spark's write failed since another one was quicker."""
    try:
        yield
    except Exception as error:  # of whatever kind: Delta's Python package knows not all of its own conflicts
        if not is_conflict(error):
            raise
        raise ConflictError(str(error)) from error


def is_conflict(error: BaseException) -> bool:
    """Tell whether an error of Spark's is a conflict of commits."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "DeltaConcurrentModificationException" in kinds:
        return True
    said = str(error)
    return bool(kinds & {"PySparkException", "Py4JJavaError"}) and _CONFLICT.search(said) is not None
