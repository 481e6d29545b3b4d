"""Answers of the live cluster, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class PartitionEnds:
    """The current state of an offsets partition. End offsets are exclusive; an epoch of -1 is None.

    `asked_at` is the time just before the request: the end offsets include everything that the log had at that time.
    """

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    coordinator_id: int | None
    coordinator_epoch: int | None
    asked_at: datetime


@dataclass(frozen=True)
class RecordPlace:
    """The partition and offset of a record, and its timestamp in milliseconds since 1970."""

    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True)
class TopicDescription:
    """A topic. `topic_id` is Kafka's text of 22 characters; `partitions` is None if their number is not known."""

    topic_id: str
    name: str
    partitions: int | None
    is_internal: bool
