"""The position of the replay, in the numbers for metrics and health checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ReplayPosition:
    """Counts of offsets partitions (`by_state`: by load_state, empty until the topic is known) and records."""

    by_state: Mapping[str, int] = field(default_factory=dict)
    leaderless: int = 0
    behind_records: int = 0
    behind_seconds: float = 0.0
    blocked: int = 0
    blocked_records: int = 0
    hanging: int = 0

    @property
    def partitions(self) -> int:
        """Number of offsets partitions of the topic."""
        return sum(self.by_state.values())

    @property
    def owned(self) -> int:
        """Number of loaded offsets partitions: the tables have all their applied records."""
        return self.by_state.get("owned", 0)

    @property
    def is_ready(self) -> bool:
        """Whether all offsets partitions are loaded."""
        return 0 < self.owned == self.partitions
