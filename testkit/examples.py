"""The number of Hypothesis examples: few for daily runs, many more for nightly ones."""

from __future__ import annotations

import os

MORE = float(os.environ.get("OFFSETSTREAM_TEST_EXAMPLES", "1"))


def examples(count: int) -> int:
    """Return the number of examples for a test that draws `count` of them in a daily run."""
    return max(1, round(count * MORE))
