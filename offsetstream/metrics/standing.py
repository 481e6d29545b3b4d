"""How the replay stands, in the figures that metrics and health are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Standing:
    """Counts of offsets partitions and records; `by_state`: of load_state. Before the topic is known there are none."""

    by_state: Mapping[str, int] = field(default_factory=dict)
    leaderless: int = 0
    behind_records: int = 0
    behind_seconds: float = 0.0
    blocked: int = 0
    blocked_records: int = 0
    hanging: int = 0

    @property
    def partitions(self) -> int:
        """How many offsets partitions the topic has."""
        return sum(self.by_state.values())

    @property
    def owned(self) -> int:
        """How many of these are loaded: the tables have all that was applied of them."""
        return self.by_state.get("owned", 0)

    @property
    def is_ready(self) -> bool:
        """Whether all are."""
        return 0 < self.owned == self.partitions
