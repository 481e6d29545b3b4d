"""Results: samples, and the figure to compare with the goal."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median
from typing import Any


def print_seconds(what: str, seconds: float) -> float:
    """Print a measurement on stderr, so that a long run shows progress. Return the seconds."""
    print(f"  {what}: {seconds:.2f} s", file=sys.stderr, flush=True)
    return seconds


@dataclass(frozen=True)
class Samples:
    """The repeats of one measurement, with its name and unit."""

    what: str
    unit: str
    values: tuple[float, ...]

    @classmethod
    def of(cls, what: str, unit: str, values: Iterable[float]) -> Samples:
        """Return samples with rounded values; there must be at least one."""
        return cls(what, unit, tuple(round(value, 4) for value in values))

    @property
    def median(self) -> float:
        """The median of the repeats."""
        return median(self.values)

    @property
    def text(self) -> str:
        """The median, and the spread if there are several repeats."""
        ends = (_number(end) for end in (min(self.values), max(self.values)))
        spread = f" ({' to '.join(ends)})" if len(self.values) > 1 else ""
        return f"{_number(self.median)}{spread} {self.unit}"


@dataclass(frozen=True)
class Result:
    """A row: the figure in the unit of its goal, the samples behind it, and a note for readers."""

    name: str
    figure: float
    samples: tuple[Samples, ...]
    note: str = ""
    scale: float = 1.0
    measured_at: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))

    @classmethod
    def ratio(cls, name: str, ours: Samples, theirs: Samples, note: str = "") -> Result:
        """Return a row that compares two medians."""
        return cls(name, ours.median / theirs.median, (ours, theirs), note)

    @classmethod
    def of(cls, name: str, samples: Samples, note: str = "") -> Result:
        """Return a row whose figure is the median."""
        return cls(name, samples.median, (samples,), note)

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Result:
        """Return the result that `dataclasses.asdict` wrote."""
        samples = tuple(Samples.of(**each) for each in row["samples"])
        return cls(**row | {"samples": samples})


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
