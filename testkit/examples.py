"""How many examples Hypothesis draws: few enough for a loop of minutes, and many more by night."""

from __future__ import annotations

import os

MORE = float(os.environ.get("OFFSETSTREAM_TEST_EXAMPLES", "1"))


def examples(count: int) -> int:
    """Return how many examples to draw where `count` are drawn by day."""
    return max(1, round(count * MORE))
