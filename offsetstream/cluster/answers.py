"""Answers of the live cluster, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias


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


Place: TypeAlias = tuple[str, int]  # topic and partition number


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The committed offset of a partition. If `offset` is None, nothing is committed, or `error` has the reason."""

    offset: int | None
    leader_epoch: int | None = None
    metadata: str = ""
    error: str | None = None


def no_offset(committed: int | None = None) -> str:
    """Return a text for a negative committed offset (None: unknown which, since Kafka's client does not return it)."""
    return f"no offset: {'a negative one' if committed is None else committed} was committed"


def omitted(group_id: str, place: Place, committed: int | None = None) -> str:
    """Return a note that a partition is skipped, because its committed offset is negative."""
    return f"group '{group_id}' {place[0]}-{place[1]} is skipped ({no_offset(committed)})"


def with_offsets(found: Mapping[Place, CommittedOffset]) -> dict[Place, CommittedOffset]:
    """Return the entries that have an offset: clients may commit a negative one, which does not count."""
    return {place: each for place, each in found.items() if each.offset is not None}
