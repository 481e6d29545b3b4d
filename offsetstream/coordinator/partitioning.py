"""The offsets partition of a group: Kafka's `partitionFor` (reference 7). Imports little: look-ups need it first."""

from __future__ import annotations

from typing import Literal, TypeAlias

from offsetstream.java_hash import java_hash

Coordinator: TypeAlias = Literal["classic", "new"]
"""The two group coordinators of Kafka brokers. They differ in the groups and offsets that they have (reference 5.9)."""

_INT_MIN = -(2**31)


def partition_for(group: str, partitions: int) -> int:
    """Return the offsets partition of a group. The topic has `partitions` partitions (default of a broker: 50).

    Uses Kafka's `Utils.abs`: the absolute value, but 0 for the smallest integer. Raises ValueError if `partitions` is
    below 1.
    """
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    value = java_hash(group)
    return 0 if value == _INT_MIN else abs(value) % partitions
