"""How many examples a test takes: few at each change, more in the long tests and at night."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest

MORE = float(os.environ.get("OFFSETSTREAM_TEST_EXAMPLES", "1"))


def examples(count: int) -> int:
    """Return the number of examples for a test that draws `count` of them in a daily run."""
    return max(1, round(count * MORE))


def seeds(at_each_change: Sequence[Any], in_long_tests: Sequence[Any]) -> list[Any]:
    """Return the values of a parameter that only chooses another example of the same kind."""
    more = (each if isinstance(each, tuple) else (each,) for each in in_long_tests)
    return [*at_each_change, *(pytest.param(*each, marks=pytest.mark.long) for each in more)]
