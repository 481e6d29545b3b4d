"""What the cluster has and the tables leave out, by the filters in the rows of the offsets partitions."""

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
_Of = Mapping[Filters, list[int]]  # offsets partitions by the filters that they have


def filters_of(partitions: Mapping[int, Row]) -> _Of:
    """Return which partitions have which filters; none of an older version's tables have any."""
    found = defaultdict[Filters, list[int]](list)
    for number, row in partitions.items():
        if filters := Filters.of(row.get("filters")):
            found[filters].append(number)
    return found


def filtered_records(decoded: pa.Table, partitions: _Of) -> pa.Array:
    """Tell of each decoded record of the log whether its partition's filters leave it out."""
    found = pa.repeat(pa.scalar(False), decoded.num_rows)
    for filters, numbers in partitions.items():
        is_there = pc.is_in(decoded["offsets_partition"], pa.array(numbers, pa.int32()))
        found = pc.or_(found, pc.and_(is_there, filters.filtered(decoded)))
    return found


def kept_answers(
    answers: Answers, partitions: Mapping[int, Row], group_homes: Mapping[str, int] | None = None
) -> Answers:
    """Return a cluster's answers without what the tables leave out, and how much that is.

    `group_homes` are the homes of `Placement`, which knows none of the groups that are left out.
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
