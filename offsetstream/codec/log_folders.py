"""Where the segments of an offsets partition are: in folders as a broker has them, or single files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from offsetstream.codec.log_segments import Segment
from offsetstream.errors import UsageError

# A swap file is a cleaned segment that a broker was about to put in its place; when it starts it finishes that.
# Indexes, snapshots, *.cleaned and *.deleted are no log.
_SEGMENT = re.compile(r"(\d{20})\.log(\.swap)?")
_PARTITION = re.compile(r".+-(\d{1,9})")
_OFFSETS_PARTITION = "__consumer_offsets-[0-9]*"
_ADVICE = "name a log segment, a folder of segments, or a folder of folders such as __consumer_offsets-12"


@dataclass(frozen=True, slots=True)
class LogPartition:
    """The segments of a partition in the order of their offsets; its number is None if no folder's name tells it."""

    number: int | None
    segments: tuple[Segment, ...]
    place: Path


def find_partitions(places: Sequence[str | Path]) -> list[LogPartition]:
    """Find the log segments in files and folders, by partition.

    A place is a segment; a folder of segments; or a folder that has the folders of offsets partitions in it, at any
    depth. Raises UsageError where there are none, or the same partition is found twice.
    """
    found = sorted((each for place in places for each in _at(Path(place))), key=_order)
    for one, other in pairwise(found):
        if one.number == other.number:
            name = "no name of a partition" if one.number is None else f"partition {one.number}"
            raise UsageError(f"{one.place} and {other.place} both hold {name}: read them one by one")
    return found


def _order(partition: LogPartition) -> int:
    return -1 if partition.number is None else partition.number


def _at(place: Path) -> list[LogPartition]:
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
        raise UsageError(f"{path} is neither a file nor a folder, and a log segment is a file: {_ADVICE}")
    return Segment(path, path.stat().st_size)


def _segments(folder: Path) -> tuple[Segment, ...]:
    """Return a folder's segments; of two that begin at the same offset the cleaned one comes first."""
    named = ((_SEGMENT.fullmatch(path.name), path) for path in folder.iterdir())
    segments = [(int(match[1]), match[2] is None, path) for match, path in named if match]
    return tuple(_segment(path) for *_, path in sorted(segments))
