"""Read and write offsets as CSV, like `offsets export` and `kafka-consumer-groups --export` (reference 8.5)."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from offsetstream.cluster.answers import CommittedOffset, Place
from offsetstream.errors import UsageError, first_line, shortened

_MAX_PARTITION, _MAX_OFFSET, _MAX_DIGITS = 2**31 - 1, 2**63 - 1, 19
_ONE_GROUP, _MANY_GROUPS = 3, 4  # columns
# The first line of a file of `offsets export --with-times`. Other tools write six columns too, of another meaning.
HEADING = ("group", "topic", "partition", "offset", "timestamp_ms", "read_again")
_TOPIC = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")  # the rule of Kafka's Topic.validate
_MAX_FIELD = 1 << 20  # characters; a group id may have 32,767


@dataclass(frozen=True)
class RecordTime:
    """The timestamp (milliseconds since 1970) that finds an offset in a copy, and the number of offsets read again.

    `read_again` counts offsets. If the log has gaps, fewer records are read again.
    """

    since_ms: int
    read_again: int


@dataclass(frozen=True)
class ExportedOffset:
    """A committed offset of a group, with the timestamp that finds it in a copy of the log (None: not exported)."""

    group_id: str
    topic: str
    partition: int
    offset: int
    timed: RecordTime | None = None

    @property
    def place(self) -> Place:
        """Topic and partition."""
        return self.topic, self.partition


@dataclass(frozen=True)
class OffsetFile:
    """The offsets of the requested groups in a file, and what else the file has."""

    path: str
    offsets: list[ExportedOffset]
    other_groups: list[str]

    def notes(self, *, uses_times: bool) -> list[str]:
        """Return notes on what the file has and a plan does not use. `uses_times`: the plan uses the timestamps."""
        found = []
        if self.other_groups:
            found.append(f"{self.path} also has offsets of {_named('group', self.other_groups)}: they are not used")
        if not uses_times and any(each.timed for each in self.offsets):
            found.append(f"the columns {' and '.join(HEADING[_MANY_GROUPS:])} of {self.path} are not used")
        return found

    def unplanned(self, planned: Collection[tuple[str, Place]]) -> list[str]:
        """Return a note on the offsets, if there are any, that the partitions of a plan do not include."""
        rest = [each for each in self.offsets if (each.group_id, each.place) not in planned]
        places = [f"{topic}-{partition}" for topic, partition in sorted({each.place for each in rest})]
        return [f"{self.path} also has offsets of {_named('partition', places)}: they are not used"] if rest else []


def read_offset_file(path: str, group_ids: Collection[str]) -> OffsetFile:
    """Read the offsets of these groups in a file. No group ids: all groups of the file.

    A line is `group,topic,partition,offset`, or `topic,partition,offset` if there is one group id. All lines have the
    same columns. Only below `HEADING` a line ends with `timestamp_ms,read_again`. Raises UsageError, which names the
    invalid line.
    """
    found: dict[tuple[str, Place], ExportedOffset] = {}
    columns = 0
    for line, row in _rows(path):
        if not columns:
            columns = len(row) if tuple(row) == HEADING else _columns(row, group_ids, line)
            if columns == len(HEADING):
                continue
        if len(row) != columns:
            raise UsageError(f"{line} has {_fields(row)}, but the first line has {columns}")
        each = _parse([*group_ids, *row] if columns == _ONE_GROUP else row, line)
        if found.setdefault((each.group_id, each.place), each) is not each:
            raise UsageError(f"{line}: {each.topic}-{each.partition} is a duplicate")
    groups = {each.group_id for each in found.values()}
    if missing := sorted(set(group_ids) - groups):
        raise UsageError(f"{path} has no offset of group '{missing[0]}'")
    if not found:
        raise UsageError(f"{path} has no offsets")
    wanted = set(group_ids) or groups
    return OffsetFile(path, [each for each in found.values() if each.group_id in wanted], sorted(groups - wanted))


def require_place(topic: str, partitions: Collection[int], where: str) -> None:
    """Raise UsageError for an invalid topic name or partition number. `where` names the line or option."""
    if not _TOPIC.fullmatch(topic):
        raise UsageError(f"{where}: {topic!r} is not a topic name (1 to 249 letters, digits, '.', '_' and '-')")
    if partitions and max(partitions) > _MAX_PARTITION:
        raise UsageError(f"{where}: partition {max(partitions)} is too large (at most {_MAX_PARTITION})")


def by_group(found: Iterable[tuple[ExportedOffset, int]]) -> dict[str, dict[Place, CommittedOffset]]:
    """Return offsets to commit, by group and partition."""
    offsets: dict[str, dict[Place, CommittedOffset]] = {}
    for each, offset in found:
        offsets.setdefault(each.group_id, {})[each.place] = CommittedOffset(offset)
    return offsets


def csv_lines(rows: Iterable[Sequence[str | int]]) -> Iterator[str]:
    """Yield rows as CSV lines for `read_offset_file`. Names are quoted: an id may have any character, also newlines."""
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for row in rows:
        writer.writerow(row)
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _rows(path: str) -> Iterator[tuple[str, list[str]]]:
    csv.field_size_limit(_MAX_FIELD)
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:  # spreadsheets write a byte order mark
            rows = csv.reader(file, strict=True)
            for row in rows:
                if row:
                    yield f"{path}, line {rows.line_num}", row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"Cannot read {path}: {first_line(error)}") from error


def _columns(row: list[str], group_ids: Collection[str], line: str) -> int:
    """Return how many columns a file without our heading has, by its first line."""
    if len(row) == _ONE_GROUP and len(group_ids) != 1:
        raise UsageError(f"{line} has no group. Add one --group for a file with topic,partition,offset")
    if len(row) not in {_ONE_GROUP, _MANY_GROUPS}:
        raise UsageError(
            f"{line} has {_fields(row)}; expected [group,]topic,partition,offset, or the first line "
            f"{','.join(HEADING)} of 'offsets export --with-times'"
        )
    return len(row)


def _parse(row: list[str], line: str) -> ExportedOffset:
    group_id, topic, *texts = row
    if not all(
        each.isascii() and each.isdecimal() and len(each) <= _MAX_DIGITS and int(each) <= _MAX_OFFSET for each in texts
    ):
        raise UsageError(f"{line} has {','.join(texts)!r} after the topic; expected numbers of 0 or more")
    partition, offset, *timed = map(int, texts)
    require_place(topic, [partition], line)
    return ExportedOffset(group_id, topic, partition, offset, RecordTime(*timed) if timed else None)


def _fields(row: list[str]) -> str:
    return "1 field" if len(row) == 1 else f"{len(row)} fields"


def _named(kind: str, names: list[str]) -> str:
    """Return up to three names with their kind, and how many more there are."""
    return f"{kind if len(names) == 1 else kind + 's'} {shortened(names)}"
