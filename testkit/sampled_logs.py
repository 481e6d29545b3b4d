"""Made-up topics whose partitions grow in bursts, and the rows that a sampler would write of them."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

SECOND, MINUTE = 1000, 60_000
START_MS = 1_767_607_200_000
EVERY = 10 * SECOND
_ROW_AT_LEAST = 10 * MINUTE


def instant(ms: int) -> datetime:
    """Return the time of milliseconds since 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


@dataclass
class Topic:
    """A topic from creation to deletion. For each partition, `grown` has (time, end) and `cut` (time, log start)."""

    name: str
    topic_id: str | None
    partitions: int
    created_ms: int
    deleted_ms: int | None
    grown: list[list[tuple[int, int]]] = field(default_factory=list)
    cut: list[list[tuple[int, int]]] = field(default_factory=list)

    def is_there(self, at_ms: int) -> bool:
        return self.created_ms <= at_ms and (self.deleted_ms is None or at_ms < self.deleted_ms)

    def end(self, number: int, at_ms: int) -> int:
        return _last(self.grown[number], at_ms)

    def log_start(self, number: int, at_ms: int) -> int:
        return _last(self.cut[number], at_ms)


class SampledLogs:
    """A few topics: ordinary ones, one without an id, one that is deleted, one that is deleted and created again."""

    def __init__(self, rng: Random, duration_ms: int) -> None:
        self._rng = rng
        self._end_ms = START_MS + duration_ms
        half, third = START_MS + duration_ms // 2, START_MS + duration_ms // 3
        self.topics = [
            self._grown(Topic("orders", "AAAAAAAAAAAAAAAAAAAAAA", 3, START_MS, None)),
            self._grown(Topic("payments", "AAAAAAAAAAAAAAAAAAAAAB", 2, START_MS, None)),
            self._grown(Topic("audit", None, 1, START_MS, None)),
            self._grown(Topic("retired", "AAAAAAAAAAAAAAAAAAAAAC", 1, START_MS, third)),
            self._grown(Topic("stock", "AAAAAAAAAAAAAAAAAAAAAD", 2, START_MS, half)),
            self._grown(Topic("stock", "AAAAAAAAAAAAAAAAAAAAAE", 1, half + 30 * SECOND, None)),
        ]

    def _grown(self, topic: Topic) -> Topic:
        for _ in range(topic.partitions):
            rate, end, at_ms = self._rng.choice([0, 1, 5, 50]), self._rng.choice([0, 0, 1000]), topic.created_ms
            ends, cuts = [(at_ms, end)], [(at_ms, end)]
            while at_ms < (topic.deleted_ms or self._end_ms):
                at_ms += self._rng.randrange(1, 8 * SECOND)
                if self._rng.random() < 0.02:
                    at_ms += self._rng.randrange(3 * MINUTE)  # the producer is idle
                end += self._rng.randint(0, 2 * rate)
                ends.append((at_ms, end))
                if self._rng.random() < 0.005:
                    cuts.append((at_ms, self._rng.randint(cuts[-1][1], end)))
            topic.grown.append(ends)
            topic.cut.append(cuts)
        return topic

    def tables(self, now_ms: int) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of topics, topic_partitions and end_offsets."""
        rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        written_until = now_ms - self._rng.choice([0, 0, 30 * SECOND])
        for topic in (each for each in self.topics if each.created_ms < now_ms):
            if topic.topic_id is not None:
                rows["topics"].append(self._topic_row(topic, now_ms))
            for number in range(topic.partitions):
                samples = list(self._samples(topic, number, now_ms))
                rows["end_offsets"] += [row for row in changes(samples) if row["ms"] <= written_until]
                if topic.is_there(now_ms) and samples:
                    rows["topic_partitions"].append(newest(samples))
        for row in (*rows["end_offsets"], *rows["topic_partitions"]):
            del row["ms"]
        if self._rng.random() < 0.5:
            rows["topic_partitions"][0]["error"] = "NOT_LEADER_OR_FOLLOWER"
        return rows

    def _topic_row(self, topic: Topic, now_ms: int) -> dict[str, Any]:
        return {
            "topic_id": topic.topic_id,
            "topic": topic.name,
            "partitions": topic.partitions,
            "first_seen_at": instant(topic.created_ms),
            "last_seen_at": instant(min(topic.deleted_ms or now_ms, now_ms)),
            "deleted_at": None if topic.deleted_ms is None or topic.is_there(now_ms) else instant(topic.deleted_ms),
        }

    def _samples(self, topic: Topic, number: int, now_ms: int) -> list[dict[str, Any]]:
        end_ms = min(now_ms, topic.deleted_ms or now_ms)
        return [
            {
                "ms": at_ms,
                "topic": topic.name,
                "topic_id": topic.topic_id,
                "partition": number,
                "leader_id": 1,
                "leader_epoch": 0,
                "log_start_offset": topic.log_start(number, at_ms),
                "high_watermark": topic.end(number, at_ms),
                "last_stable_offset": max(topic.end(number, at_ms) - (number and self._rng.choice([0, 0, 1])), 0),
                "sampled_at": instant(at_ms),
            }
            for at_ms in range(topic.created_ms + 3 * SECOND, end_ms, EVERY)
        ]


def changes(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of end_offsets: one for each change, and at least one in ten minutes."""
    rows: list[dict[str, Any]] = []
    for before, sample in zip([None, *samples], samples, strict=False):
        if before is None or _values(before) != _values(sample) or sample["ms"] - rows[-1]["ms"] >= _ROW_AT_LEAST:
            held = None if before is None else before["sampled_at"]
            rows.append(sample | {"previous_sampled_at": held, "written_day": sample["sampled_at"].date()})
    return rows


def newest(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of topic_partitions."""
    last = samples[-1]
    first = next(at for at in range(len(samples) - 1, -1, -1) if at == 0 or _values(samples[at - 1]) != _values(last))
    return last | {"changed_at": samples[first]["sampled_at"], "error": None}


def _values(sample: dict[str, Any]) -> tuple[int, ...]:
    return sample["log_start_offset"], sample["high_watermark"], sample["last_stable_offset"]


def _last(steps: list[tuple[int, int]], at_ms: int) -> int:
    return steps[max(bisect_right(steps, (at_ms, 1 << 62)) - 1, 0)][1]
