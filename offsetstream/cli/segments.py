"""Log segments that a command is given, and what stderr tells of them."""

from __future__ import annotations

from collections.abc import Sequence

from offsetstream.cli.tell import tell
from offsetstream.codec.log_folders import LogPartition, find_partitions
from offsetstream.errors import UsageError


def open_partitions(places: Sequence[str], wanted: Sequence[int] = ()) -> list[LogPartition]:
    """Find the partitions in files and folders, all or the wanted ones. Raises UsageError where one is not there."""
    partitions = find_partitions(places)
    missing = sorted(set(wanted) - {partition.number for partition in partitions})
    if missing:
        raise UsageError(f"{', '.join(places)}: no folder of a partition {missing[0]} is there")
    return [partition for partition in partitions if not wanted or partition.number in wanted]


def warn(note: str) -> None:
    """Tell on stderr what the output does not show."""
    tell(f"Warning: {note}")
