"""Status as Burrow evaluates it, and time lag as kafka-lag-exporter looks it up, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Point = tuple[int, int]  # an end offset and the time of its sample in milliseconds


@dataclass(frozen=True)
class Commit:
    """A commit in Burrow's window. `lag` is the lag at that time, None if no end was known."""

    offset: int
    timestamp_ms: int
    lag: int | None


@dataclass(frozen=True)
class Limits:
    """Burrow's settings: the length of both rings, and the lag that it ignores."""

    intervals: int = 10
    minimum_complete: float = 0.0
    allowed_lag: int = 0


def burrow_status(  # noqa: PLR0911 - one return for each rule
    window: Sequence[Commit], ends: Sequence[int], now_ms: int, limits: Limits
) -> tuple[str, str]:
    """Return a partition's status and the rule that decided it.

    `window` has the last commits, and `ends` the last sampled ends; both have the oldest first.
    """
    if not window:
        return "OK", "empty"
    if len(window) / limits.intervals < limits.minimum_complete:
        return "OK", "incomplete"
    first, last = window[0], window[-1]
    now_ms = now_ms // 1000 * 1000
    if ends[-1] - last.offset <= limits.allowed_lag:
        return "OK", "0"
    if now_ms - last.timestamp_ms > last.timestamp_ms - first.timestamp_ms and not any(
        end <= last.offset for end in ends
    ):
        return "STOP", "1"
    if _is_rewound(window):
        return "REWIND", "2"
    lags = [commit.lag for commit in window if commit.lag is not None]
    if any(lag <= limits.allowed_lag for lag in lags):
        return "OK", "3"
    if all(commit.offset == first.offset for commit in window):
        return "STALL", "4"
    if not any(later < earlier for earlier, later in pairwise(lags)):
        return "WARN", "5"
    return "OK", "6"


def _is_rewound(window: Sequence[Commit]) -> bool:
    """Return whether an offset went back, and no later commit reached the old one again."""
    for at in range(1, len(window)):
        before = window[at - 1].offset
        if window[at].offset < before:
            return all(commit.offset < before for commit in window[at:])
    return False


class LookupTable:
    """The points that the exporter keeps of a partition, without its limit of sixty."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.has_dropped = False

    def add(self, point: Point) -> None:
        """Add a sample; ignore it if it is older or lower than the newest."""
        if self.points and (self.points[-1][1] >= point[1] or self.points[-1][0] > point[0]):
            self.has_dropped = True
        elif len(self.points) > 1 and self.points[-1][0] == self.points[-2][0] == point[0]:
            self.points[-1] = point
        else:
            self.points.append(point)

    def time_of(self, offset: int) -> tuple[str, float | None]:
        """Return how the write time of the offset was found, and this time in milliseconds."""
        if self.points and offset == self.points[-1][0]:
            return "zero", None
        if len(self.points) < 2:
            return "too few", None
        for left, right in zip(self.points[-2::-1], self.points[:0:-1], strict=True):
            if left[0] <= offset <= right[0]:
                return "interpolated", _on_line(left, right, offset)
        return "extrapolated", None


def _on_line(left: Point, right: Point, offset: int) -> float:
    return right[1] - (right[0] - offset) * (right[1] - left[1]) / (right[0] - left[0])
