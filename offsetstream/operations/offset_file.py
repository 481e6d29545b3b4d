"""Offsets in a file, as `offsets export` and kafka-consumer-groups --export write them (reference 8.5)."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from offsetstream.cluster.committed import CommittedOffset, Place
from offsetstream.errors import UsageError, first_line
from offsetstream.operations.correspondence import Timed

_LARGEST_PARTITION, _LARGEST, _DIGITS = 2**31 - 1, 2**63 - 1, 19
_ONE_GROUP, _MANY_GROUPS, _WITH_TIMES = 3, 4, 6  # columns
_TOPIC = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")  # as Kafka's Topic.validate has it
_LONGEST = 1 << 20  # characters of a field: a group id may have 32,767


@dataclass(frozen=True)
class Moved:
    """An offset of a group, with what finds it in another log, if that was asked for."""

    group_id: str
    topic: str
    partition: int
    offset: int
    timed: Timed | None = None

    @property
    def place(self) -> Place:
        """Topic and partition."""
        return self.topic, self.partition


def read_offsets(path: str, group_ids: Collection[str]) -> dict[str, dict[Place, CommittedOffset]]:
    """Return the offsets of the groups, by group and partition; of all groups of the file where none is named.

    UsageError names the line that is none: `topic,partition,offset` for one group, else `group,topic,partition,offset`.
    """
    return by_group((each, each.offset) for each in read_moved(path, group_ids))


def read_moved(path: str, group_ids: Collection[str]) -> list[Moved]:
    """Return the same with `timestamp_ms,read_again`, which may follow (`offsets export --with-times`)."""
    found: dict[tuple[str, Place], Moved] = {}
    for where, row in _rows(path):
        each = _read(row, group_ids, where)
        if found.setdefault((each.group_id, each.place), each) is not each:
            raise UsageError(f"{where}: {each.topic}-{each.partition} is there twice")
    if missing := sorted(set(group_ids) - {each.group_id for each in found.values()}):
        raise UsageError(f"{path} has no offset of the group '{missing[0]}'")
    if not found:
        raise UsageError(f"{path} has no offset")
    return [each for each in found.values() if not group_ids or each.group_id in group_ids]


def require_place(topic: str, partitions: Collection[int], where: str) -> None:
    """Raise UsageError for what no topic of Kafka's can be called, or no partition be; `where` it stands."""
    if not _TOPIC.fullmatch(topic):
        raise UsageError(f"{where}: {topic!r} is no name of a topic: up to 249 letters, digits, '.', '_' and '-'")
    if partitions and max(partitions) > _LARGEST_PARTITION:
        raise UsageError(f"{where} has the partition {max(partitions)}, and none is above {_LARGEST_PARTITION}")


def by_group(found: Iterable[tuple[Moved, int]]) -> dict[str, dict[Place, CommittedOffset]]:
    """Return what is to be committed of each, by group and partition."""
    offsets: dict[str, dict[Place, CommittedOffset]] = {}
    for each, offset in found:
        offsets.setdefault(each.group_id, {})[each.place] = CommittedOffset(offset)
    return offsets


def lines_of(rows: Iterable[Sequence[str | int]]) -> Iterator[str]:
    """Yield rows as lines that `read_moved` takes: a name may hold anything, also the end of a line."""
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for row in rows:
        writer.writerow(row)
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _rows(path: str) -> Iterator[tuple[str, list[str]]]:
    csv.field_size_limit(_LONGEST)
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:  # spreadsheets write a mark before it
            rows = csv.reader(file, strict=True)
            for row in rows:
                if row:
                    yield f"{path}, line {rows.line_num}", row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"cannot read {path}: {first_line(error)}") from error


def _read(row: list[str], group_ids: Collection[str], where: str) -> Moved:
    if len(row) == _ONE_GROUP:
        if len(group_ids) != 1:
            raise UsageError(f"{where} names no group: give one --group for a file of topic,partition,offset")
        row = [*group_ids, *row]
    if len(row) not in {_MANY_GROUPS, _WITH_TIMES}:
        raise UsageError(f"{where} has {len(row)} fields: give [group,]topic,partition,offset")
    group_id, topic, *texts = row
    if not all(
        each.isascii() and each.isdecimal() and len(each) <= _DIGITS and int(each) <= _LARGEST for each in texts
    ):
        raise UsageError(f"{where} has {','.join(texts)!r} behind the topic: these are numbers of 0 or more")
    partition, offset, *timed = map(int, texts)
    require_place(topic, [partition], where)
    return Moved(group_id, topic, partition, offset, Timed(*timed) if timed else None)
