"""What coordinators answer about committed offsets, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Place: TypeAlias = tuple[str, int]  # a topic and a partition of it


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What a coordinator has for a partition: no `offset` where nothing is committed, or an `error` says why not."""

    offset: int | None
    leader_epoch: int | None = None
    metadata: str = ""
    error: str | None = None
