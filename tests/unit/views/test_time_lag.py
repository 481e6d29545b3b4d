"""Time lag in SQL compared with kafka-lag-exporter's look-up in plain Python, on thousands of tables at once."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random

from testkit.field_rules import Limits, LookupTable
from testkit.sampled_logs import EVERY, MINUTE, instant
from testkit.tables import reader_of, write_tables
from tests.unit.views.windows import NOW_MS, Window, tables_of

WINDOWS, TWO_MINUTES = 5000, 2 * MINUTE


def random_window(rng: Random, number: int) -> Window:
    """A partition's samples, some of which go down or are missing, and one offset, mostly within them."""
    end, samples = rng.randrange(50), []
    count = rng.choice([1, 2, 10, 60])
    goes_down = rng.random() < 0.1
    for at in range(count):
        end += rng.choice([0, 0, rng.randrange(20)])
        end = max(end - rng.randrange(30), 0) if goes_down and rng.random() < 0.1 else end
        samples.append((end, NOW_MS - (count - 1 - at) * EVERY))
    offset = rng.randint(max(samples[0][0] - 5, 0), max(end for end, _ in samples) + 2)
    return Window(number, tuple(samples), ((offset, NOW_MS - 5),), Limits(), 300)


def truth(window: Window) -> tuple[str, float | None]:
    """The exporter's answer in seconds.

    Ours differs by design where the exporter extrapolates or has dropped a sample.
    """
    table = LookupTable()
    for point in window.samples:
        table.add(point)
    how, at_ms = table.time_of(window.commits[-1][0])
    if table.has_dropped:
        return "dropped", None
    return how, 0.0 if how == "zero" else None if at_ms is None else (NOW_MS - at_ms) / 1000


def test_time_lag_equals_the_exporters(tmp_path: Path) -> None:
    rng = Random(20260102)
    windows = [random_window(rng, number) for number in range(WINDOWS)]
    reader = reader_of(write_tables(tmp_path, tables_of(windows)), instant(NOW_MS))
    found = {row["group_id"]: row for row in reader.rows("time_lag")}
    counted: Counter[str] = Counter()
    for window in windows:
        (how, seconds), row = truth(window), found[window.group_id]
        offset, method, ours = window.commits[-1][0], row["method"], row["time_lag_seconds"]
        counted[how] += 1
        if how == "dropped":
            _check_remaining_samples(window, method, ours)
        elif offset >= window.samples[-1][0]:
            assert (method, ours) == ("caught up", 0.0), window
        elif how == "interpolated":
            assert method == "interpolated", window
            assert math.isclose(ours, seconds or 0.0, abs_tol=1e-6), (window, row, seconds)
        else:
            assert method == "at least", window
            assert math.isclose(ours, (NOW_MS - window.samples[0][1]) / 1000, abs_tol=1e-6), window
    assert counted["interpolated"] > WINDOWS / 3, counted
    assert min(counted[how] for how in ("zero", "too few", "extrapolated", "dropped")) > WINDOWS / 50, counted


def _check_remaining_samples(window: Window, method: str, ours: float) -> None:
    """Check windows with truncated messages: the samples below a later one suffice, unless they are too far apart."""
    left = [
        (end, at_ms)
        for at, (end, at_ms) in enumerate(window.samples)
        if all(later >= end for later, _ in window.samples[at:])
    ]
    offset = window.commits[-1][0]
    if offset >= window.samples[-1][0]:
        assert (method, ours) == ("caught up", 0.0)
    elif offset < left[0][0]:
        assert method == "at least"
    else:
        apart = max(later - at_ms for (_, at_ms), (_, later) in pairwise(left))
        assert method == "interpolated" or (method == "at least" and apart > TWO_MINUTES)
        oldest = max((NOW_MS - at_ms) / 1000 for end, at_ms in left if end <= offset)
        assert 0 <= ours <= oldest + 1e-6
