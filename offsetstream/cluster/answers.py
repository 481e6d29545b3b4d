"""What the live cluster answers, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class PartitionEnds:
    """An offsets partition as the cluster sees it now; offsets are exclusive ends, -1 epochs are None.

    `asked_at` is the time before the cluster was asked: all that was in the log then is below the ends.
    """

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    coordinator_id: int | None
    coordinator_epoch: int | None
    asked_at: datetime


@dataclass(frozen=True)
class RecordPlace:
    """Where a record of the topic is, and its timestamp in milliseconds since 1970."""

    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True)
class TopicSeen:
    """A topic as the cluster has it now; `topic_id` in Kafka's 22 characters."""

    topic_id: str
    name: str
    partitions: int
    is_internal: bool
