"""Which offsets partition holds a group: Kafka's ``partitionFor`` (reference 7)."""

from __future__ import annotations

import sys
from array import array

_INT_MIN = -(2**31)


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: over UTF-16 code units, in 32 bits, signed."""
    # surrogatepass: a lone surrogate cannot come from Kafka, yet must not stop a look-up.
    units = array("H", text.encode("utf-16-le", "surrogatepass"))
    if sys.byteorder == "big":
        units.byteswap()
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def partition_for(group_id: str, partitions: int) -> int:
    """Return the offsets partition of a group, of ``partitions`` partitions (50 where nobody changed it).

    Kafka's ``Utils.abs``: the absolute value, but 0 for the smallest integer. ValueError for no partitions.
    """
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    value = java_hash(group_id)
    return 0 if value == _INT_MIN else abs(value) % partitions
