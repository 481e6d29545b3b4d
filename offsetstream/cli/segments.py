"""Find the log segments that a command reads, and warn about them on stderr."""

from __future__ import annotations

from collections.abc import Sequence

from offsetstream.cli.messages import print_line
from offsetstream.codec.log_folders import LogPartition, find_partitions
from offsetstream.errors import UsageError


def open_partitions(places: Sequence[str], wanted: Sequence[int] = ()) -> list[LogPartition]:
    """Find all partitions in files and folders, or the wanted ones. Raise UsageError if one is missing."""
    partitions = find_partitions(places)
    missing = sorted(set(wanted) - {partition.number for partition in partitions})
    if missing:
        raise UsageError(f"{', '.join(places)}: there is no folder of partition {missing[0]}")
    return [partition for partition in partitions if not wanted or partition.number in wanted]


def warn(note: str) -> None:
    """Print a warning to stderr."""
    print_line(f"Warning: {note}")
