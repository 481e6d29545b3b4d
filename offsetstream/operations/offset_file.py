"""Read and write offsets as CSV, like `offsets export` and `kafka-consumer-groups --export` (reference 8.5)."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from offsetstream.cluster.committed import CommittedOffset, Place
from offsetstream.errors import UsageError, first_line
from offsetstream.operations.timestamps import RecordTime

_MAX_PARTITION, _MAX_OFFSET, _MAX_DIGITS = 2**31 - 1, 2**63 - 1, 19
_ONE_GROUP, _MANY_GROUPS, _WITH_TIMES = 3, 4, 6  # columns
_TOPIC = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")  # the rule of Kafka's Topic.validate
_MAX_FIELD = 1 << 20  # characters; a group id may have 32,767


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


def read_offsets(path: str, group_ids: Collection[str]) -> dict[str, dict[Place, CommittedOffset]]:
    """Return the offsets of these groups in a file, by group and partition. No group ids: all groups of the file.

    A line is `group,topic,partition,offset`, or `topic,partition,offset` if there is one group id. Raises UsageError,
    which names the invalid line.
    """
    return by_group((each, each.offset) for each in read_exported(path, group_ids))


def read_exported(path: str, group_ids: Collection[str]) -> list[ExportedOffset]:
    """Return the offsets with their timestamps, if the file has them (`offsets export --with-times`).

    These lines end with the fields `timestamp_ms,read_again`. See `read_offsets` for the rest.
    """
    found: dict[tuple[str, Place], ExportedOffset] = {}
    for line, row in _rows(path):
        each = _parse(row, group_ids, line)
        if found.setdefault((each.group_id, each.place), each) is not each:
            raise UsageError(f"{line}: {each.topic}-{each.partition} is a duplicate")
    if missing := sorted(set(group_ids) - {each.group_id for each in found.values()}):
        raise UsageError(f"{path} has no offset of group '{missing[0]}'")
    if not found:
        raise UsageError(f"{path} has no offsets")
    return [each for each in found.values() if not group_ids or each.group_id in group_ids]


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
    """Yield rows as CSV lines for `read_exported`. Names are quoted: an id may have any character, also a newline."""
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


def _parse(row: list[str], group_ids: Collection[str], line: str) -> ExportedOffset:
    if len(row) == _ONE_GROUP:
        if len(group_ids) != 1:
            raise UsageError(f"{line} has no group. Add one --group for a file with topic,partition,offset")
        row = [*group_ids, *row]
    if len(row) not in {_MANY_GROUPS, _WITH_TIMES}:
        raise UsageError(f"{line} has {len(row)} fields; expected [group,]topic,partition,offset")
    group_id, topic, *texts = row
    if not all(
        each.isascii() and each.isdecimal() and len(each) <= _MAX_DIGITS and int(each) <= _MAX_OFFSET for each in texts
    ):
        raise UsageError(f"{line} has {','.join(texts)!r} after the topic; expected numbers of 0 or more")
    partition, offset, *timed = map(int, texts)
    require_place(topic, [partition], line)
    return ExportedOffset(group_id, topic, partition, offset, RecordTime(*timed) if timed else None)
