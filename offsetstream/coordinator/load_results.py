"""What a load and an unload came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a load, or the replay of later records, came to.

    `status` is `ignored` for an epoch that is too old or a partition that is already owned. `error` is why it
    failed; `problem` what a classic broker logs as an error after everything is published (reference 4.7 item 5).
    Numbers of records, bytes, the load buffer's bytes, and of the groups and committed offsets that the partition
    then has; `skipped` are records left aside, by offset, with the reason.
    """

    status: Literal["loaded", "failed", "ignored"]
    error: str | None = None
    problem: str | None = None
    records: int = 0
    size: int = 0
    buffer_size: int = 0
    groups: int = 0
    offsets: int = 0
    skipped: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnloadResult:
    """What an unload removed: the counts that a broker logs; nothing if its epoch was too old."""

    is_accepted: bool
    groups: int = 0
    offsets: int = 0
