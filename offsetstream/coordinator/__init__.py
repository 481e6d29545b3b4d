"""Interpret the records of __consumer_offsets: partitions, groups, members. No Spark, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offsetstream.coordinator.cache import GroupMetadataCache as GroupMetadataCache

__all__ = ["GroupMetadataCache"]


def __getattr__(name: str) -> Any:
    """Import the cache on first use: look-ups need only `partition_for`, and no NumPy."""
    if name == "GroupMetadataCache":
        from offsetstream.coordinator.cache import GroupMetadataCache  # noqa: PLC0415 - on demand, see above

        return GroupMetadataCache
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
