"""Find what the filters in the rows of the offsets partitions exclude from the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.tables.filters import Filters
from offsetstream.tables.placement import Placement
from offsetstream.verify.answers import Answers, Filtered
from offsetstream.verify.difference import Row

_Rows = list[dict[str, object]]
_Of = Mapping[Filters, list[int]]  # offsets partitions by their filters


def filters_of(partitions: Mapping[int, Row]) -> _Of:
    """Return the partitions by their filters. Tables of older versions have none."""
    found = defaultdict[Filters, list[int]](list)
    for number, row in partitions.items():
        if filters := Filters.of(row.get("filters")):
            found[filters].append(number)
    return found


def filtered_records(decoded: pa.Table, partitions: _Of) -> pa.Array:
    """Return a flag per decoded record of the log: whether the filters of its partition exclude it."""
    found = pa.repeat(pa.scalar(False), decoded.num_rows)
    for filters, numbers in partitions.items():
        is_there = pc.is_in(decoded["offsets_partition"], pa.array(numbers, pa.int32()))
        found = pc.or_(found, pc.and_(is_there, filters.filtered(decoded)))
    return found


def kept_answers(
    answers: Answers, partitions: Mapping[int, Row], group_homes: Mapping[str, int] | None = None
) -> Answers:
    """Return a cluster's answers without what the filters exclude; the result also says how much that is.

    `group_homes` are the homes of `Placement`, which does not know filtered groups.
    """
    of = filters_of(partitions)
    if not of:
        return answers
    placement = Placement(len(partitions), group_homes)
    homes = {row["group_id"]: placement.of(row["group_id"]) for row in answers.groups}
    groups, offsets, bare = set[str](), _Rows(), set[str]()
    for filters, numbers in of.items():
        here = {group_id for group_id, home in homes.items() if home is None or home in numbers}
        groups |= _filtered(here, filters.filters_groups)
        own = [row for row in answers.offsets if row["group_id"] in here - groups]
        topics = _filtered({row["topic"] for row in own}, filters.filters_topics)
        offsets += [row for row in own if row["topic"] in topics]
        bare |= {row["group_id"] for row in own} - {row["group_id"] for row in own if row["topic"] not in topics}
    taken = {id(row) for row in offsets}
    kept: dict[str, Any] = {
        name: [row for row in getattr(answers, name) if row["group_id"] not in groups and id(row) not in taken]
        for name in ("groups", "members", "assignments", "offsets")
    }
    return replace(answers, **kept, gone=answers.gone - groups, filtered=Filtered(groups, len(offsets), bare))


def _filtered(names: set[str], is_filtered: Callable[[pa.Array], pa.Array]) -> set[str]:
    some = pa.array(sorted(names), pa.string())
    return set(some.filter(is_filtered(some)).to_pylist())
