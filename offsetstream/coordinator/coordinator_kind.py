"""The two group coordinators of Kafka brokers. They differ in the groups and offsets that they have (reference 5.9)."""

from __future__ import annotations

from typing import Literal, TypeAlias

Coordinator: TypeAlias = Literal["classic", "new"]
