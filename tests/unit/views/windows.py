"""Random windows of commits and samples, each with its own group and partition, all in one set of tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from testkit.field_rules import Commit, Limits
from testkit.sampled_logs import EVERY, SECOND, START_MS, changes, instant, newest

NOW_MS = START_MS + 3_600_123


@dataclass(frozen=True)
class Window:
    """`samples` are end offsets and their times, `commits` offsets and their times, each oldest first."""

    number: int
    samples: tuple[tuple[int, int], ...]
    commits: tuple[tuple[int, int], ...]
    limits: Limits
    window_seconds: int
    max_time_lag_seconds: int | None = None
    members: int = 1
    log_start: int = 0

    @property
    def is_read(self) -> bool:
        """Whether the job has read a message just below the end, not a transaction's marker."""
        return self.number % 2 == 0

    @property
    def group_id(self) -> str:
        return f"group-{self.number}"

    @property
    def now_ms(self) -> int:
        """The time of the last sample. Nothing after it is known."""
        return min(NOW_MS, self.samples[-1][1])

    def end_at(self, at_ms: int) -> int | None:
        """The end offset known at that time."""
        return next((end for end, sampled_ms in reversed(self.samples) if sampled_ms <= at_ms), None)

    def committed_at(self, at_ms: int) -> int | None:
        return next((offset for offset, commit_ms in reversed(self.commits) if commit_ms <= at_ms), None)

    @property
    def ring(self) -> list[Commit]:
        """Burrow's window of commits."""
        return [
            Commit(offset, at_ms, None if (end := self.end_at(at_ms)) is None else max(0, end - offset))
            for offset, at_ms in self.commits[-self.limits.intervals :]
        ]

    @property
    def ends(self) -> list[int]:
        """Burrow's ring of end offsets."""
        return [end for end, _ in self.samples[-self.limits.intervals :]]


def random_window(rng: Random, number: int) -> Window:
    """A partition that grows steadily or in steps, and a group with one of the habits that Burrow distinguishes."""
    count = rng.choice([1, 5, 31, 60])
    last_ms = NOW_MS - rng.randrange(EVERY)
    pace = rng.choice([0, 1, 10, 10])
    end, samples = rng.choice([0, 100]), []
    for at in range(count):
        grows = rng.random() < rng.choice([0.3, 1.0])
        end += rng.randint(0, 2 * pace) if grows else 0
        samples.append((end, last_ms - (count - 1 - at) * EVERY))
    if rng.random() < 0.3:  # it was idle, and a message came just now
        samples[-1] = (samples[-1][0] + rng.randint(1, 30), samples[-1][1])
    habit = rng.choice(
        ["follows", "lags", "lags", "stalls", "rewinds", "stops", "stops", "falls", "gains", "rewinds", "random"]
    )
    return Window(
        number,
        tuple(samples),
        _commits(rng, habit, samples),
        Limits(rng.choice([3, 10, 10]), rng.choice([0.0, 0.0, 0.5, 1.0]), rng.choice([0, 0, 0, 5])),
        window_seconds=rng.choice([60, 300]),
        max_time_lag_seconds=rng.choice([None, 30, 120]),
        members=rng.choice([0, 1]),
    )


def _commits(rng: Random, habit: str, samples: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    is_slow = habit in ("falls", "gains")  # visible only next to a commit from before the window
    apart = rng.choice([10, 30] if is_slow else [1, 5, 10, 30]) * SECOND
    count = 20 if is_slow else rng.choice([1, 2, 5, 12, 20])
    at_ms = (
        NOW_MS - count * apart - (rng.randrange(600 * SECOND) if habit == "stops" else rng.randrange(apart + SECOND))
    )
    offset, lag, commits = 0, rng.randrange(40), []
    for number in range(count):
        at_ms += apart
        end = next((end for end, sampled_ms in reversed(samples) if sampled_ms <= at_ms), samples[0][0])
        if habit == "follows":
            offset = max(end - rng.choice([0, 0, 1, 3]), offset)
        elif habit in ("lags", "stops"):
            lag += rng.choice([0, 0, 1, 3]) if number % 4 else rng.choice([-1, 0, 1])
            offset = max(end - max(lag, 1), offset)
        elif habit == "falls":
            offset += rng.choice([1, 2])
        elif habit == "gains":
            offset += max(1, (end - offset) // 8)
        elif habit == "stalls":
            offset = offset or max(samples[0][0] - 1, 0)
        elif habit == "rewinds":
            offset = max(end - 40, 0) if number == count // 2 else max(end - 5, offset if number < count // 2 else 0)
            offset -= rng.choice([0, 20]) if number > count // 2 else 0
        else:
            offset = rng.randint(0, samples[-1][0] + 1)
        commits.append((max(offset, 0), at_ms))
    return tuple(commits)


def tables_of(windows: Sequence[Window]) -> dict[str, list[dict[str, Any]]]:
    """The job's table rows for these windows."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for window in windows:
        place = {
            "offsets_partition": 0,
            "log_id": 0,
            "group_id": window.group_id,
            "topic": "t",
            "partition": window.number,
        }
        told = [
            {
                "ms": at_ms,
                "topic": "t",
                "partition": window.number,
                "log_start_offset": window.log_start,
                "high_watermark": end,
                "last_stable_offset": end,
                "readable_end": end if window.is_read else None,
                "sampled_at": instant(at_ms),
            }
            for end, at_ms in window.samples
        ]
        rows["end_offsets"] += changes(told)
        rows["topic_partitions"].append(newest(told))
        commits = [
            place
            | {
                "record_offset": window.number * 100 + at,
                "record_timestamp": instant(at_ms),
                "committed_offset": offset,
                "commit_timestamp": instant(at_ms),
                "commit_timestamp_ms": at_ms,
            }
            for at, (offset, at_ms) in enumerate(window.commits)
        ]
        rows["offset_commits"] += [row | {"is_tombstone": False} for row in commits]
        rows["committed_offsets"].append(commits[-1] | {"in_coordinator_partition": True})
        rows["groups"].append(_group(window))
        rows["thresholds"].append(_thresholds(window))
    for row in (*rows["end_offsets"], *rows["topic_partitions"]):
        del row["ms"]
    return rows


def _group(window: Window) -> dict[str, Any]:
    return {
        "offsets_partition": 0,
        "group_id": window.group_id,
        "member_count": window.members,
        "in_coordinator_partition": True,
    }


def _thresholds(window: Window) -> dict[str, Any]:
    return {
        "group_id": window.group_id,
        "intervals": window.limits.intervals,
        "minimum_complete": window.limits.minimum_complete,
        "allowed_lag": window.limits.allowed_lag,
        "window_seconds": window.window_seconds,
        "max_time_lag_seconds": window.max_time_lag_seconds,
    }
