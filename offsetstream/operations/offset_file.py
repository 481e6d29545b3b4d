"""Offsets in a file, as `offsets export` and kafka-consumer-groups --export write them (reference 8.5)."""

from __future__ import annotations

import csv
from collections.abc import Collection
from pathlib import Path

from offsetstream.cluster.committed import CommittedOffset, Place
from offsetstream.errors import UsageError, first_line

_LARGEST = 2**63 - 1
_ONE_GROUP, _MANY_GROUPS = 3, 4  # columns
_LONGEST = 1 << 20  # characters of a field: a group id may have 32,767


def read_offsets(path: str, group_ids: Collection[str]) -> dict[str, dict[Place, CommittedOffset]]:
    """Return the offsets of the groups, by group and partition; of all groups of the file where none is named.

    UsageError names the line that is none: `topic,partition,offset` for one group, else `group,topic,partition,offset`.
    """
    csv.field_size_limit(_LONGEST)
    found: dict[str, dict[Place, CommittedOffset]] = {}
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file, strict=True)
            for row in rows:
                if row:
                    group_id, place, offset = _read(row, group_ids, f"{path}, line {rows.line_num}")
                    of_group = found.setdefault(group_id, {})
                    if place in of_group:
                        raise UsageError(f"{path}, line {rows.line_num}: {place[0]}-{place[1]} is there twice")
                    of_group[place] = CommittedOffset(offset)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"cannot read {path}: {first_line(error)}") from error
    wanted = set(group_ids) or set(found)
    if missing := sorted(wanted - set(found)):
        raise UsageError(f"{path} has no offset of the group '{missing[0]}'")
    if not found:
        raise UsageError(f"{path} has no offset")
    return {group_id: offsets for group_id, offsets in found.items() if group_id in wanted}


def _read(row: list[str], group_ids: Collection[str], where: str) -> tuple[str, Place, int]:
    if len(row) == _ONE_GROUP:
        if len(group_ids) != 1:
            raise UsageError(f"{where} names no group: give one --group for a file of topic,partition,offset")
        row = [*group_ids, *row]
    if len(row) != _MANY_GROUPS:
        raise UsageError(f"{where} has {len(row)} fields: give [group,]topic,partition,offset")
    group_id, topic, *numbers = row
    if not all(each.isascii() and each.isdecimal() and int(each) <= _LARGEST for each in numbers):
        raise UsageError(f"{where} has {','.join(numbers)!r} for partition and offset: these are numbers of 0 or more")
    return group_id, (topic, int(numbers[0])), int(numbers[1])
