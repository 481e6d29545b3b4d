"""Find the log segments that a command reads, and warn about them on stderr."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from offsetstream.cli.text import counted, print_line
from offsetstream.codec.log_segments import LogPartition, Skip, find_partitions
from offsetstream.errors import UsageError


def open_partitions(places: Sequence[str], wanted: Sequence[int] = ()) -> list[LogPartition]:
    """Find all partitions in files and folders, or the wanted ones. Raise UsageError if one is missing."""
    partitions = find_partitions(places)
    missing = sorted(set(wanted) - {partition.number for partition in partitions})
    if missing:
        raise UsageError(f"{', '.join(places)}: there is no folder of partition {missing[0]}")
    return [partition for partition in partitions if not wanted or partition.number in wanted]


def skip_damaged_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--skip-damaged`, whose value is None or collects what is skipped."""
    return click.option(
        "--skip-damaged",
        is_flag=True,
        help="Skip damaged batches of log segments and report on stderr what is missing (default: fail).",
    )(command)


def topics_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--topics`, whose value `topic_names` has the names by id."""
    return click.option(
        "--topics",
        "topic_names",
        metavar="FILE",
        callback=lambda _, __, path: _read_topics(path),
        help='Read names of topic ids from this JSON file: {"id": "name"}.',
    )(command)


def _read_topics(path: str | None) -> Mapping[str, str]:
    if path is None:
        return {}
    try:
        names = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f'cannot read topics from {path}: {reason}; give {{"id": "name"}}') from error
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise UsageError(f'{path} has no names of topic ids: give {{"id": "name"}}')
    return names


class Skipped:
    """What was skipped: each part is a warning, and so is their sum."""

    def __init__(self) -> None:
        self._skips: list[Skip] = []

    def add(self, skip: Skip) -> None:
        """Warn about a skipped part of a segment."""
        self._skips.append(skip)
        warn(str(skip))

    def close(self) -> None:
        """Print the sum, if anything was skipped."""
        if not self._skips:
            return
        count = sum(skip.end - skip.position for skip in self._skips)
        ranges = {(each.path.parent, each.first_offset or 0, each.next_offset) for each in self._skips}
        offsets = sum(max(0, end - first) for _, first, end in ranges if end is not None)
        more = " and those at the end of a log" if any(end is None for *_, end in ranges) else ""
        parts = counted(len(self._skips), "damaged part")
        segments = counted(len({skip.path for skip in self._skips}), "segment")
        lost, are = counted(offsets, "offset"), "is" if offsets == 1 and not more else "are"
        warn(
            f"skipped {parts} with {count} bytes in {segments}: up to {lost}{more} {are} missing. "
            "The answer may have older values instead."
        )


def warn(note: str) -> None:
    """Print a warning to stderr."""
    print_line(f"Warning: {note}")
