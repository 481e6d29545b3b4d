"""Find the log segments of offsets partitions: in folders, as a broker has them, or as single files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from offsetstream.codec.log_segments import Segment
from offsetstream.errors import UsageError

# A .swap file is a cleaned segment that is about to replace older ones; a broker finishes this when it starts.
# Indexes, snapshots, *.cleaned and *.deleted files are not part of the log.
_SEGMENT = re.compile(r"(\d{20})\.log(\.swap)?")
_PARTITION = re.compile(r".+-(\d{1,9})")
OFFSETS_TOPIC = "__consumer_offsets"
_OFFSETS_PARTITION = f"{OFFSETS_TOPIC}-[0-9]*"
_EXAMPLE = f"{OFFSETS_TOPIC}-12"
_ADVICE = f"give a log segment, a folder of segments, or a folder that contains folders such as {_EXAMPLE}"


@dataclass(frozen=True, slots=True)
class LogPartition:
    """The segments of a partition in offset order. `number` is None if no folder name has it."""

    number: int | None
    segments: tuple[Segment, ...]
    path: Path


def find_partitions(places: Sequence[str | Path]) -> list[LogPartition]:
    """Find the log segments in files and folders, by partition.

    Each place is a segment file, a folder of segments, or a folder that contains folders of offsets partitions, at any
    depth. Raises UsageError if a place has no segments, or if two places have the same partition.
    """
    found = _found(places)
    for one, other in pairwise(found):
        if one.number == other.number:
            places = f"{one.path} and {other.path}"
            if one.number is None:
                raise UsageError(f"{places}: no folder name has a partition number; read them one at a time")
            raise UsageError(f"{places} both hold partition {one.number}: read them one at a time")
    return found


def find_replicas(places: Sequence[str | Path]) -> list[LogPartition]:
    """Find the same, in the order of their numbers, where several places may have replicas of a partition.

    Raises UsageError if a place has no segments, or if no folder name has the number of a partition.
    """
    found = _found(places)
    for partition in found:
        if partition.number is None:
            raise UsageError(f"{partition.path}: its folder's name has no partition number, as in {_EXAMPLE}")
    return found


def _found(places: Sequence[str | Path]) -> list[LogPartition]:
    return sorted((each for place in places for each in _partitions_at(Path(place))), key=_order)


def _order(partition: LogPartition) -> int:
    return -1 if partition.number is None else partition.number


def _partitions_at(place: Path) -> list[LogPartition]:
    try:
        if not place.is_dir():
            return [LogPartition(_number(place.resolve().parent), (_segment(place),), place)]
        folders = [place] if _segments(place) else list(filter(_is_partition, place.rglob(_OFFSETS_PARTITION)))
        found = [LogPartition(_number(folder.resolve()), _segments(folder), folder) for folder in folders]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read {place}: {reason}; {_ADVICE}") from error
    if not found:
        raise UsageError(f"{place} has no log segments: {_ADVICE}")
    return found


def _is_partition(path: Path) -> bool:
    return _number(path) is not None and path.is_dir()


def _number(folder: Path) -> int | None:
    named = _PARTITION.fullmatch(folder.name)
    return int(named[1]) if named else None


def _segment(path: Path) -> Segment:
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a file or a folder: {_ADVICE}")
    return Segment(path, path.stat().st_size)


def _segments(folder: Path) -> tuple[Segment, ...]:
    """Return a folder's segments. If two start at the same offset, the cleaned one (.swap) comes first."""
    named = ((_SEGMENT.fullmatch(path.name), path) for path in folder.iterdir())
    segments = [(int(match[1]), match[2] is None, path) for match, path in named if match]
    return tuple(_segment(path) for *_, path in sorted(segments))
