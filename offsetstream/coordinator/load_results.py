"""The results of loading and unloading a partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a load, or of a replay of later records.

    `status` is `ignored` if the epoch is too old or the partition is already owned. `error` is why the load failed.
    `problem` is what a classic broker logs as an error after it has published everything (reference 4.7 item 5).
    `records`, `size` (bytes) and `buffer_size` (bytes of the load buffer) say what was read; `groups` and `offsets`
    count what the partition has afterwards. `skipped` has the offset of each skipped record, with the reason.
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
    """The result of an unload: the counts that a broker logs. If the epoch was too old, nothing was removed."""

    is_accepted: bool
    groups: int = 0
    offsets: int = 0
